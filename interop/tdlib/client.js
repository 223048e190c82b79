// TDLib, the official client library, as a client of a proxy.
//
//   node client.js ping DIR HOST PORT SECRET   asks it to ping Telegram through the proxy, prints the answer
//   node client.js stay DIR HOST PORT SECRET   goes online through the proxy, prints every connection state,
//                                              stays until its standard input ends
//
// DIR takes TDLib's database. Every line printed is one JSON object. Run it where nothing but loopback can be
// reached: TDLib dials Telegram's own addresses as soon as it starts.
'use strict'

const tdl = require('tdl')
const { getTdjson } = require('prebuilt-tdlib')

const [command, directory, server, port, secret] = process.argv.slice(2)
const proxy = {
  _: 'proxy',
  server,
  port: Number(port),
  type: { _: 'proxyTypeMtproto', secret }
}

function print (line) {
  process.stdout.write(JSON.stringify(line) + '\n')
}

function createClient () {
  // Level 1 is errors, which go to standard error: a garbled stream would show there.
  tdl.configure({ tdjson: getTdjson(), verbosityLevel: 1 })
  const client = tdl.createClient({
    apiId: 1,
    apiHash: '0123456789abcdef0123456789abcdef',
    databaseDirectory: directory + '/database',
    filesDirectory: directory + '/files'
  })
  client.on('error', error => print({ failed: String(error) }))
  return client
}

async function ping (client) {
  try {
    const answer = await client.invoke({ _: 'pingProxy', proxy })
    print({ seconds: answer.seconds })
  } catch (error) {
    print({ code: error.code, error: error.message })
  }
}

async function stay (client) {
  client.on('update', update => {
    if (update._ === 'updateConnectionState') print({ state: update.state._ })
  })
  await client.invoke({ _: 'addProxy', proxy, enable: true })
  print({ state: 'enabled' })
  await new Promise(resolve => process.stdin.on('end', resolve).resume())
}

async function main () {
  const commands = { ping, stay }
  const client = createClient()
  await commands[command](client)
  await client.close() // leaving while TDLib's threads run crashes now and then
}

main().then(
  () => process.exit(0),
  error => { print({ failed: String(error) }); process.exit(1) }
)
