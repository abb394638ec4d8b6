// A member of a group: `node member.js BOOTSTRAP ARGUMENTS`. It tells in lines of JSON what it has
// been given and what it has read, and leaves when its input ends.

'use strict'

const { Kafka, logLevel } = require('kafkajs')

const [bootstrap, text] = process.argv.slice(2)
const { topic, group, sessionTimeout } = JSON.parse(text)
const kafka = new Kafka({
  brokers: [bootstrap],
  clientId: 'kafkajs-tests',
  logLevel: logLevel.ERROR,
  connectionTimeout: 30000, // By itself it gives up after a second.
  requestTimeout: 120000,
  retry: { retries: 60, initialRetryTime: 100, maxRetryTime: 2000 },
})
const consumer = kafka.consumer({
  groupId: group,
  sessionTimeout,
  heartbeatInterval: 200,
  maxWaitTimeInMs: 100, // It sends heartbeats between fetches only.
  rebalanceTimeout: 60000,
})

function tell(what) {
  process.stdout.write(JSON.stringify(what) + '\n')
}

async function main() {
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) =>
    tell({ assigned: payload.memberAssignment[topic] || [] })
  )
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await consumer.run({
    eachMessage: async ({ message }) => tell({ read: message.key.toString() }),
  })
  process.stdin.on('end', async () => {
    await consumer.disconnect()
    process.exit(0)
  })
  process.stdin.resume()
}

main().catch(error => {
  process.stderr.write(`${error.stack}\n`)
  process.exit(1)
})
