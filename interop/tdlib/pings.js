// TDLib, asked to ping Telegram through a proxy many times at once: each ping is a connection of its own.
//
//   node pings.js DIR HOST PORT SECRET NUMBER
//
// DIR takes TDLib's database. Prints one JSON object per answer. Run it where nothing but loopback can be reached, see
// client.js.
'use strict'

const tdl = require('tdl')
const { getTdjson } = require('prebuilt-tdlib')

const [directory, server, port, secret, number] = process.argv.slice(2)
const proxy = {
  _: 'proxy',
  server,
  port: Number(port),
  type: { _: 'proxyTypeMtproto', secret }
}

function print (line) {
  process.stdout.write(JSON.stringify(line) + '\n')
}

async function main () {
  tdl.configure({ tdjson: getTdjson(), verbosityLevel: 1 })
  const client = tdl.createClient({
    apiId: 1,
    apiHash: '0123456789abcdef0123456789abcdef',
    databaseDirectory: directory + '/database',
    filesDirectory: directory + '/files'
  })
  client.on('error', error => print({ failed: String(error) }))
  await Promise.all(Array.from({ length: Number(number) }, () => client.invoke({ _: 'pingProxy', proxy }).then(
    answer => print({ seconds: answer.seconds }),
    error => print({ code: error.code, error: error.message })
  )))
  await client.close() // leaving while TDLib's threads run crashes now and then
}

main().then(
  () => process.exit(0),
  error => { print({ failed: String(error) }); process.exit(1) }
)
