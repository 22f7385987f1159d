import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageRequestMode;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * A group member that pops. It sets the request mode of its group, prints {"ready": client id} after joining, and
 * then each received message. Messages of %RETRY%GROUP are pulled, as always.
 * Options: --namesrv ADDRESS, --group GROUP, --topic TOPIC; optional: --fail-first (fails the first delivery of each
 * message), and those of Access.
 */
public class ConsumeByPop {
    private static final Set<String> FAILED = ConcurrentHashMap.newKeySet();

    public static void main(String[] args) {
        Map<String, String> options = Terminal.options(args);
        Terminal.run(() -> consume(options));
    }

    private static void consume(Map<String, String> options) throws Exception {
        String topic = options.get("topic");
        DefaultMQAdminExt admin = Access.to(options, new DefaultMQAdminExt(Access.hook(options)));
        admin.start();
        String broker = admin.examineTopicRouteInfo(topic).getBrokerDatas().get(0).selectBrokerAddr();
        admin.setMessageRequestMode(broker, topic, options.get("group"), MessageRequestMode.POP, 0, 3000);
        admin.shutdown();
        DefaultMQPushConsumer consumer = Access.to(options, new DefaultMQPushConsumer(options.get("group")));
        consumer.setPollNameServerInterval(1000);
        consumer.subscribe(topic, "*");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setClientRebalance(false);
        consumer.setPopInvisibleTime(10_000);
        consumer.setPopBatchNums(8);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            context.setDelayLevelWhenNextConsume(1);
            return fails(messages, options.containsKey("fail-first"))
                ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        Runtime.getRuntime().addShutdownHook(new Thread(consumer::shutdown));
        Terminal.print("ready", consumer.buildMQClientId());
        new CountDownLatch(1).await();
    }

    /** Prints the messages. Returns whether one of them is delivered for the first time and should fail. */
    private static boolean fails(Iterable<MessageExt> messages, boolean failFirst) {
        boolean fails = false;
        for (MessageExt message : messages) {
            Receive.print(message);
            fails |= failFirst && FAILED.add(message.getMsgId());
        }
        return fails;
    }
}
