import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Walks through the protocol once, for the golden frames of integration/capture.py.
 * Options: --namesrv ADDRESS, and --plain for no more than one send with long field names.
 */
public class Capture {
    static final String TOPIC = "CaptureTopic";
    static final String GROUP = "capture-group";

    static String nameServer;

    public static void main(String[] args) throws Exception {
        Map<String, String> options = Terminal.options(args);
        nameServer = options.get("namesrv");
        hideAddress();
        Terminal.run(options.containsKey("plain") ? Capture::plainSend : Capture::everything);
    }

    /** Puts 127.0.0.1 in place of this machine's address at the start of every unique message id. */
    static void hideAddress() throws Exception {
        Field start = MessageClientIDSetter.class.getDeclaredField("FIX_STRING");
        start.setAccessible(true);
        char[] text = (char[]) start.get(null);
        "7F000001".getChars(0, 8, text, 0);
    }

    static <T extends ClientConfig> T named(T client, String instance) {
        client.setNamesrvAddr(nameServer);
        client.setClientIP("127.0.0.1");
        client.setInstanceName(instance);
        return client;
    }

    static void step(String name, Terminal.Work step) throws Exception {
        try {
            step.run();
            Terminal.print("step", name);
        } catch (Exception error) {
            throw new Exception("step " + name, error);
        }
    }

    static void refused(String name, Terminal.Work step) throws Exception {
        try {
            step.run();
        } catch (Exception error) {
            Terminal.print("step", name, "refused", error.getMessage());
            return;
        }
        throw new Exception("step " + name + " was not refused");
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static void plainSend() throws Exception {
        DefaultMQProducer producer = named(new DefaultMQProducer("plain-producer"), "plain");
        producer.start();
        Message message = new Message("PlainTopic", "TagA", "plain-1", bytes("long field names"));
        step("plain send", () -> producer.send(message));
        producer.shutdown();
    }

    static void everything() throws Exception {
        DefaultMQProducer producer = named(new DefaultMQProducer("capture-producer"), "producer");
        producer.start();
        SendResult sent = sends(producer);
        pulls(sent);
        concurrent(producer);
        orderly(producer);
        step("view by id", () -> producer.viewMessage(TOPIC, sent.getOffsetMsgId()));
        refused("view nothing", () -> producer.viewMessage(TOPIC, withOffset(sent.getOffsetMsgId(), "7FFFFFFF")));
        step("query", () -> producer.queryMessage(TOPIC, "order-1", 10, 0, Long.MAX_VALUE));
        refused("query nothing", () -> producer.queryMessage(TOPIC, "no-such-key", 10, 0, Long.MAX_VALUE));
        transactions();
        requests(producer);
        litePull();
        try {
            ((Terminal.Work) Class.forName("CaptureFive").getDeclaredConstructor().newInstance()).run();
        } catch (ClassNotFoundException older) {
            Terminal.print("step", "none of 5.x");
        }
        producer.shutdown();
    }

    static String withOffset(String offsetMessageId, String low) {
        return offsetMessageId.substring(0, offsetMessageId.length() - low.length()) + low;
    }

    static SendResult sends(DefaultMQProducer producer) throws Exception {
        Message tagged = new Message(TOPIC, "TagA", "order-1 customer-7", bytes("hello"));
        tagged.putUserProperty("a", "5");
        tagged.putUserProperty("colour", "grün");
        SendResult[] first = new SendResult[1];
        step("send", () -> first[0] = producer.send(tagged));
        step("send without properties", () -> producer.send(new Message(TOPIC, bytes("no tag"))));
        Message delayed = new Message(TOPIC, "TagB", bytes("later"));
        delayed.setDelayTimeLevel(1);
        step("send delayed", () -> producer.send(delayed));
        byte[] large = bytes("compress me ".repeat(600));
        step("send compressed", () -> producer.send(new Message(TOPIC, "TagA", large)));
        Message async = new Message(TOPIC, "TagC", bytes("not waiting for the store"));
        async.setWaitStoreMsgOK(false);
        step("send oneway", () -> producer.sendOneway(async));
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            batch.add(new Message(TOPIC, "TagA", "batch-" + i, bytes("batch " + i)));
        }
        step("send batch", () -> producer.send(batch));
        return first[0];
    }

    static void pulls(SendResult sent) throws Exception {
        DefaultMQPullConsumer consumer = named(new DefaultMQPullConsumer("capture-pull"), "puller");
        consumer.start();
        MessageQueue queue = sent.getMessageQueue();
        step("queues", () -> consumer.fetchSubscribeMessageQueues(TOPIC));
        step("max offset", () -> consumer.maxOffset(queue));
        step("min offset", () -> consumer.minOffset(queue));
        step("search offset", () -> consumer.searchOffset(queue, System.currentTimeMillis() - 60_000));
        step("earliest", () -> consumer.earliestMsgStoreTime(queue));
        for (MessageQueue each : consumer.fetchSubscribeMessageQueues(TOPIC)) {
            step("pull found", () -> consumer.pull(each, "*", 0, 32));
        }
        step("pull filtered", () -> consumer.pull(queue, "NoSuchTag", 0, 32));
        step("pull at the end", () -> consumer.pull(queue, "*", consumer.maxOffset(queue), 32));
        step("pull past the end", () -> consumer.pull(queue, "*", 1_000_000, 32));
        step("pull an unused queue", () -> consumer.pull(new MessageQueue("TBW102", queue.getBrokerName(), 0), "*", 0, 32));
        step("no offset", () -> consumer.fetchConsumeOffset(queue, true));
        step("update offset", () -> consumer.updateConsumeOffset(queue, 1));
        step("persist", () -> consumer.getOffsetStore().persist(queue));
        step("query offset", () -> consumer.fetchConsumeOffset(queue, true));
        refused("pull an unknown topic", () -> consumer.pull(
            new MessageQueue("NoSuchTopic", queue.getBrokerName(), 0), "*", 0, 32));
        refused("pull an impossible queue", () -> consumer.pull(
            new MessageQueue(TOPIC, queue.getBrokerName(), 999), "*", 0, 32));
        MQClientInstance client = consumer.getDefaultMQPullConsumerImpl().getRebalanceImpl().getmQClientFactory();
        String broker = client.findBrokerAddressInPublish(queue.getBrokerName());
        refused("members of no group", () ->
            client.getMQClientAPIImpl().getConsumerIdListByGroup(broker, "no-such-group", 3000));
        consumer.shutdown();
    }

    static DefaultMQPushConsumer pushConsumer(String group, String instance) throws Exception {
        DefaultMQPushConsumer consumer = named(new DefaultMQPushConsumer(group), instance);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        return consumer;
    }

    static void concurrent(DefaultMQProducer producer) throws Exception {
        CountDownLatch failed = new CountDownLatch(1);
        CountDownLatch retried = new CountDownLatch(1);
        MessageListenerConcurrently listener = (messages, context) -> {
            for (MessageExt message : messages) {
                if (message.getReconsumeTimes() > 0) {
                    retried.countDown();
                } else if ("order-1 customer-7".equals(message.getKeys())) {
                    failed.countDown();
                    context.setDelayLevelWhenNextConsume(1);
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        };
        DefaultMQPushConsumer one = pushConsumer(GROUP, "one");
        one.setMaxReconsumeTimes(3);
        one.subscribe(TOPIC, "TagA || TagB");
        one.registerMessageListener(listener);
        one.start();
        await("a first failure", failed);
        DefaultMQPushConsumer two = pushConsumer(GROUP, "two");
        two.subscribe(TOPIC, "TagA || TagB");
        two.registerMessageListener(listener);
        two.start();
        await("a second delivery", retried);
        one.getDefaultMQPushConsumerImpl().persistConsumerOffset();
        two.getDefaultMQPushConsumerImpl().persistConsumerOffset();
        bySql(producer);
        admin();
        letAnswersCome();
        two.shutdown();
        one.shutdown();
    }

    static void bySql(DefaultMQProducer producer) throws Exception {
        CountDownLatch matched = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = pushConsumer("capture-sql", "sql");
        consumer.subscribe(TOPIC, MessageSelector.bySql("a IS NOT NULL AND a > 3"));
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            matched.countDown();
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        step("start with SQL", consumer::start);
        await("a message by SQL", matched);
        consumer.shutdown();
        DefaultMQPushConsumer wrong = pushConsumer("capture-bad-sql", "bad-sql");
        wrong.subscribe(TOPIC, MessageSelector.bySql("a >"));
        wrong.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
            ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        refused("start with bad SQL", wrong::start);
    }

    static void orderly(DefaultMQProducer producer) throws Exception {
        CountDownLatch consumed = new CountDownLatch(1);
        AtomicBoolean suspended = new AtomicBoolean();
        DefaultMQPushConsumer consumer = pushConsumer("capture-orderly", "orderly");
        consumer.subscribe(TOPIC, "*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            if (suspended.compareAndSet(false, true)) {
                return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
            }
            consumed.countDown();
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        await("an orderly delivery", consumed);
        consumer.shutdown();
    }

    static void transactions() throws Exception {
        CountDownLatch checked = new CountDownLatch(1);
        TransactionMQProducer producer = named(new TransactionMQProducer("capture-transactions"), "transactions");
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object outcome) {
                return (LocalTransactionState) outcome;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                checked.countDown();
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        producer.start();
        for (LocalTransactionState outcome : LocalTransactionState.values()) {
            Message message = new Message(TOPIC, "TagT", "transaction-" + outcome.ordinal(), bytes(outcome.name()));
            step("transaction " + outcome, () -> producer.sendMessageInTransaction(message, outcome));
        }
        await("a transaction check", checked);
        letAnswersCome();
        producer.shutdown();
    }

    static void requests(DefaultMQProducer producer) throws Exception {
        DefaultMQPushConsumer consumer = pushConsumer("capture-replies", "replies");
        consumer.subscribe("CaptureRequests", "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                if (MessageUtil.getReplyToClient(message) == null) {
                    continue;
                }
                try {
                    producer.send(MessageUtil.createReplyMessage(message, bytes("answer")), 3000);
                } catch (Exception error) {
                    throw new IllegalStateException(error);
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        // The topic has to be there before the consumer asks for its queues.
        producer.send(new Message("CaptureRequests", bytes("makes the topic")));
        consumer.start();
        step("request", () -> producer.request(new Message("CaptureRequests", bytes("question")), 10_000));
        consumer.shutdown();
    }

    static void litePull() throws Exception {
        DefaultLitePullConsumer consumer = named(new DefaultLitePullConsumer("capture-lite"), "lite");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(TOPIC, "*");
        consumer.start();
        step("lite pull", () -> {
            for (int i = 0; i < 10 && consumer.poll(1000).isEmpty(); i++) {
                Terminal.print("step", "nothing yet");
            }
        });
        consumer.shutdown();
    }

    static void admin() throws Exception {
        DefaultMQAdminExt admin = named(new DefaultMQAdminExt(), "admin");
        admin.start();
        String broker = admin.examineTopicRouteInfo(TOPIC).getBrokerDatas().get(0).selectBrokerAddr();
        step("cluster", admin::examineBrokerClusterInfo);
        step("topics", admin::fetchAllTopicList);
        step("topics by cluster", () -> admin.fetchTopicsByCLuster("DefaultCluster"));
        step("topic stats", () -> admin.examineTopicStats(TOPIC));
        step("consume stats", () -> admin.examineConsumeStats(GROUP));
        step("consume stats of a topic", () -> admin.examineConsumeStats(GROUP, TOPIC));
        step("consumers", () -> admin.examineConsumerConnectionInfo(GROUP));
        refused("consumers of no group", () -> admin.examineConsumerConnectionInfo("no-such-group"));
        step("producers", () -> admin.examineProducerConnectionInfo("capture-producer", TOPIC));
        step("time span", () -> admin.queryConsumeTimeSpan(TOPIC, GROUP));
        step("who consumes", () -> admin.queryTopicConsumeByWho(TOPIC));
        step("all topics of a broker", () -> admin.getAllTopicConfig(broker, 3000));
        step("all groups of a broker", () -> admin.getAllSubscriptionGroup(broker, 3000));
        step("running info", () -> admin.getConsumerRunningInfo(GROUP, "127.0.0.1@one", false));
        step("consume status", () -> admin.getConsumeStatus(TOPIC, GROUP, ""));
        MessageExt message = admin.queryMessage(TOPIC, "batch-1", 1, 0, Long.MAX_VALUE).getMessageList().get(0);
        step("consume directly", () -> admin.consumeMessageDirectly(GROUP, "127.0.0.1@one", TOPIC, message.getMsgId()));
        step("reset offsets", () -> admin.resetOffsetByTimestamp(TOPIC, GROUP, System.currentTimeMillis(), true));
        TopicConfig config = new TopicConfig("OrderedTopic", 2, 2, 6);
        step("create a topic", () -> admin.createAndUpdateTopicConfig(broker, config));
        step("order of a topic", () -> admin.createOrUpdateOrderConf("OrderedTopic", "broker-a:2", true));
        step("route with an order", () -> admin.examineTopicRouteInfo("OrderedTopic"));
        refused("route of nothing", () -> admin.examineTopicRouteInfo("NoSuchTopic"));
        refused("config of nothing", () -> admin.getKVConfig("NO_SUCH_NAMESPACE", "key"));
        step("delete at the broker", () -> admin.deleteTopicInBroker(Set.of(broker), "OrderedTopic"));
        admin.shutdown();
    }

    /** Waits for other threads to send and receive a listener's result after it returns. */
    static void letAnswersCome() throws Exception {
        Thread.sleep(1000);
    }

    static void await(String what, CountDownLatch latch) throws Exception {
        step(what, () -> {
            if (!latch.await(60, TimeUnit.SECONDS)) {
                throw new Exception("did not come");
            }
        });
    }
}
