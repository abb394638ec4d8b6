// One act of a kafkajs user: `node client.js BOOTSTRAP ACT ARGUMENTS`, arguments and result in JSON.

'use strict'

const { CompressionTypes, ConfigResourceTypes, Kafka, logLevel } = require('kafkajs')

const [bootstrap, act, text] = process.argv.slice(2)
// By itself it gives up a connection after a second, and a transaction that ends after two.
const retry = { retries: 60, initialRetryTime: 100, maxRetryTime: 2000 }
const kafka = new Kafka({
  brokers: [bootstrap],
  clientId: 'kafkajs-tests',
  logLevel: logLevel.ERROR,
  connectionTimeout: 30000,
  requestTimeout: 120000,
  retry,
})

async function withAdmin(use) {
  const admin = kafka.admin()
  await admin.connect()
  try {
    return await use(admin)
  } finally {
    await admin.disconnect()
  }
}

// Kafka's brokers learn of a change a moment after it was answered.
async function askUntil(isDone, ask) {
  const deadline = Date.now() + 120000
  for (;;) {
    const answer = await ask()
    if (isDone(answer) || Date.now() > deadline) return answer
    await new Promise(resolve => setTimeout(resolve, 20))
  }
}

async function produce({ topic, count, codec, acks, idempotent }) {
  const producer = kafka.producer({ idempotent, maxInFlightRequests: 1 })
  await producer.connect()
  const messages = Array.from({ length: count }, (_, number) => ({
    key: String(number),
    value: number % 10 === 9 ? null : `value ${number}`,
    headers: { h: 'x' },
    partition: number % 2,
    timestamp: String(1000 + number),
  }))
  const half = count / 2
  const options = { acks, compression: CompressionTypes[codec] }
  const first = await producer.send({ topic, messages: messages.slice(0, half), ...options })
  const topicMessages = [{ topic, messages: messages.slice(half) }]
  const second = await producer.sendBatch({ topicMessages, ...options })
  await producer.disconnect()
  return [...first, ...second]
}

// A consumer of kafkajs always joins a group. This is what it fetches with, once it has.
async function fetch({ topic, partition, offset }) {
  const createCluster = Object.getOwnPropertySymbols(kafka).find(
    symbol => symbol.description === 'private:Kafka:createCluster'
  )
  const cluster = kafka[createCluster]({})
  await cluster.connect()
  await cluster.addTargetTopic(topic)
  const [{ leader }] = cluster.findTopicPartitionMetadata(topic).filter(
    metadata => metadata.partitionId === partition
  )
  const broker = await cluster.findBroker({ nodeId: String(leader) })
  const partitions = [{ partition, fetchOffset: String(offset), maxBytes: 1 << 20 }]
  const { responses } = await broker.fetch({
    maxWaitTime: 100,
    minBytes: 1,
    maxBytes: 1 << 20,
    isolationLevel: 1,
    topics: [{ topic, partitions }],
  })
  await cluster.disconnect()
  const [found] = responses[0].partitions
  return found.messages.map(message => ({
    offset: Number(message.offset),
    timestamp: Number(message.timestamp),
    key: message.key.toString(),
    value: message.value === null ? null : message.value.toString(),
    headers: Object.fromEntries(
      Object.entries(message.headers).map(([name, value]) => [name, value.toString()])
    ),
  }))
}

async function consume({ topic, group, count }) {
  const consumer = kafka.consumer({ groupId: group })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  const found = []
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
    const eachMessage = async ({ partition, message }) => {
      found.push([partition, Number(message.offset), message.key.toString()])
      if (found.length === count) resolve()
    }
    consumer.run({ eachMessage }).catch(reject)
  })
  const offsets = found.reduce((most, [partition, offset]) => most.set(partition, offset + 1), new Map())
  await consumer.commitOffsets(
    [...offsets].map(([partition, offset]) => ({ topic, partition, offset: String(offset) }))
  )
  await consumer.disconnect()
  return withAdmin(async admin => ({
    found,
    committed: await admin.fetchOffsets({ groupId: group, topics: [topic] }),
  }))
}

async function administer({ topic }) {
  return withAdmin(async admin => {
    const created = await admin.createTopics({
      timeout: 60000,
      topics: [
        { topic, numPartitions: 2, configEntries: [{ name: 'retention.ms', value: '100000000000' }] },
      ],
    })
    await admin.createPartitions({ timeout: 60000, topicPartitions: [{ topic, count: 3 }] })
    await admin.alterConfigs({
      resources: [
        {
          type: ConfigResourceTypes.TOPIC,
          name: topic,
          configEntries: [{ name: 'cleanup.policy', value: 'compact' }],
        },
      ],
    })
    const policy = await askUntil(
      found => found === 'compact',
      async () => {
        const { resources } = await admin.describeConfigs({
          resources: [
            { type: ConfigResourceTypes.TOPIC, name: topic, configNames: ['cleanup.policy'] },
          ],
          includeSynonyms: false,
        })
        return resources[0].configEntries[0].configValue
      }
    )
    const listed = await admin.listTopics()
    const partitions = await askUntil(
      found => found.length === 3,
      async () => {
        const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
        return topics[0].partitions.map(({ partitionId }) => partitionId).sort()
      }
    )
    const cluster = await admin.describeCluster()
    await admin.deleteTopics({ timeout: 60000, topics: [topic] })
    const left = await askUntil(found => !found.includes(topic), () => admin.listTopics())
    return {
      created,
      policy,
      isListed: listed.includes(topic),
      partitions,
      ports: cluster.brokers.map(({ port }) => port),
      isListedAfterwards: left.includes(topic),
    }
  })
}

async function create({ topic }) {
  const topics = [{ topic, numPartitions: 2 }]
  return withAdmin(admin => admin.createTopics({ timeout: 60000, topics, waitForLeaders: true }))
}

async function offsets({ topic, timestamp, deleteTo }) {
  return withAdmin(async admin => {
    const byTime = await admin.fetchTopicOffsetsByTimestamp(topic, timestamp)
    const partitions = [{ partition: 0, offset: String(deleteTo) }]
    await admin.deleteTopicRecords({ topic, partitions })
    return { byTime, ends: await admin.fetchTopicOffsets(topic) }
  })
}

// Commit, abort, commit: each with a record and an offset of a group. Then another takes over.
async function transact({ topic, source, group, id }) {
  const options = { transactionalId: id, idempotent: true, maxInFlightRequests: 1, retry }
  const producer = kafka.producer(options)
  await producer.connect()
  for (const [number, end] of ['commit', 'abort', 'commit'].entries()) {
    const transaction = await producer.transaction()
    await transaction.send({ topic, messages: [{ key: String(number), value: end, partition: 0 }] })
    const partitions = [{ partition: number % 2, offset: String(10 + number) }]
    await transaction.sendOffsets({ consumerGroupId: group, topics: [{ topic: source, partitions }] })
    await transaction[end]()
  }
  const stale = await producer.transaction()
  await stale.send({ topic, messages: [{ key: 'stale', value: 'never seen', partition: 0 }] })
  const heir = kafka.producer(options)
  await heir.connect()
  const transaction = await heir.transaction()
  const refused = await stale.commit().then(() => null, error => error.type)
  await transaction.send({ topic, messages: [{ key: 'heir', value: 'commit', partition: 0 }] })
  await transaction.commit()
  await heir.disconnect()
  await producer.disconnect()
  return withAdmin(async admin => ({
    refused,
    committed: await admin.fetchOffsets({ groupId: group, topics: [source] }),
  }))
}

const acts = { administer, consume, create, fetch, offsets, produce, transact }

acts[act](JSON.parse(text)).then(
  result => process.stdout.write(JSON.stringify(result) + '\n'),
  error => {
    process.stderr.write(`${error.stack}\n`)
    process.exitCode = 1
  }
)
