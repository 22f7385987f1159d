import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A member of a consumer group: prints {"ready": client id} when it has joined, then every message that it got.
 * It goes on until it is ended; by SIGTERM it says goodbye first.
 * Options: --namesrv ADDRESS, --group GROUP, --topic TOPIC, and optionally --tags EXPRESSION or --sql CONDITION,
 * --from first|last, --orderly, --fail-first (fails the first delivery of each message), --trace TOPIC (writes trace
 * records there), and those of Access.
 */
public class Consume {
    private static final Set<String> FAILED = ConcurrentHashMap.newKeySet();

    public static void main(String[] args) {
        Map<String, String> options = Terminal.options(args);
        Terminal.run(() -> consume(options));
    }

    private static void consume(Map<String, String> options) throws Exception {
        boolean failFirst = options.containsKey("fail-first");
        DefaultMQPushConsumer consumer = Access.to(options, new DefaultMQPushConsumer(
            options.get("group"), Access.hook(options), new AllocateMessageQueueAveragely(),
            options.containsKey("trace"), options.get("trace")));
        // The default of 30 s is how long a new group of 5.x waits for the route of its retry topic.
        consumer.setPollNameServerInterval(1000);
        if (options.containsKey("sql")) {
            consumer.subscribe(options.get("topic"), MessageSelector.bySql(options.get("sql")));
        } else {
            consumer.subscribe(options.get("topic"), options.getOrDefault("tags", "*"));
        }
        consumer.setConsumeFromWhere(options.getOrDefault("from", "first").equals("first")
            ? ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
            : ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        if (options.containsKey("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) ->
                fails(messages, failFirst)
                    ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
                    : ConsumeOrderlyStatus.SUCCESS);
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
                fails(messages, failFirst)
                    ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                    : ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        }
        consumer.start();
        Runtime.getRuntime().addShutdownHook(new Thread(consumer::shutdown));
        Terminal.print("ready", consumer.buildMQClientId());
        new CountDownLatch(1).await();
    }

    /** Prints the messages; says whether this is the first delivery of one of them and should fail. */
    private static boolean fails(List<MessageExt> messages, boolean failFirst) {
        boolean fails = false;
        for (MessageExt message : messages) {
            Receive.print(message);
            fails |= failFirst && FAILED.add(message.getMsgId());
        }
        return fails;
    }
}
