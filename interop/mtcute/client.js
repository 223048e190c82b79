// mtcute, a client library with an MTProto of its own, as a client of a proxy.
//
//   node client.js HOST PORT SECRET DC UPLOAD < KEY
//
// goes through the whole key exchange with the DC, asks for its configuration, downloads its file and uploads UPLOAD
// random bytes, all through the proxy. KEY is the DC's public RSA key (PKCS #1 in PEM). Prints one JSON object. It
// dials nothing but the proxy: to an MTProto proxy a DC is a number.
import { createHash, randomBytes } from 'node:crypto'
import { text } from 'node:stream/consumers'
import { Long, MemoryStorage } from '@mtcute/core'
import { addPublicKey } from '@mtcute/core/utils.js'
import { MtProxyTcpTransport, TelegramClient } from '@mtcute/node'
import { NodeCryptoProvider } from '@mtcute/node/utils.js'

const [host, port, secret, dcText, upload] = process.argv.slice(2)
const dc = Number(dcText)

console.log = console.error // mtcute logs with it

// mtcute compresses requests as zlib streams where the documentation says gzip. Telegram takes those, the DC of the
// tests does not; null means that it does not pay.
class PlainRequests extends NodeCryptoProvider {
  gzip () { return null }
}

async function createClient () {
  const crypto = new PlainRequests()
  await crypto.initialize()
  addPublicKey(crypto, await text(process.stdin))
  const address = { id: dc, ipAddress: '192.0.2.1', port: 443 } // of RFC 5737: it is not dialled
  return new TelegramClient({
    apiId: 1,
    apiHash: '0123456789abcdef0123456789abcdef',
    crypto,
    storage: new MemoryStorage(),
    transport: new MtProxyTcpTransport({ host, port: Number(port), secret }),
    defaultDcs: { main: address, media: { ...address, mediaOnly: true } },
    disableUpdates: true,
    logLevel: 2 // errors and warnings, to standard error
  })
}

function sha256 (bytes) {
  return createHash('sha256').update(bytes).digest('hex')
}

async function download (client) {
  const location = {
    _: 'inputDocumentFileLocation',
    id: Long.ONE,
    accessHash: Long.ZERO,
    fileReference: new Uint8Array([1]),
    thumbSize: ''
  }
  // The kind of a big file: connections of their own, to the media DC.
  return await client.downloadAsBuffer(location, { partSize: 128 })
}

async function main () {
  const client = await createClient()
  await client.connect()
  const config = await client.call({ _: 'help.getConfig' })
  const down = await download(client)
  // An upload wants to know whether the user pays, and nobody has logged in.
  await client.storage.self.store({ userId: 1, isBot: false, isPremium: false, usernames: [] })
  const up = randomBytes(Number(upload))
  const { inputFile } = await client.uploadFile({ file: up, fileName: 'file', fileMime: 'application/octet-stream' })
  process.stdout.write(JSON.stringify({
    dc: config.thisDc,
    down: { size: down.length, sha256: sha256(down) },
    up: { id: inputFile.id.toString(), size: up.length, sha256: sha256(up) }
  }) + '\n')
  await client.destroy()
}

main().then(
  () => process.exit(0),
  error => { console.error(error); process.exit(1) }
)
