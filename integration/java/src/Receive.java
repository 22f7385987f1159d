import java.util.Base64;
import java.util.Collection;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Reads a topic from its first offsets, without sharing it with a group, and prints every message.
 * Options: --namesrv ADDRESS, --topic TOPIC, and as wished --count N (ends when so many have come),
 * --timeout SECONDS (ends after that, however many have come).
 */
public class Receive {
    public static void main(String[] args) {
        Map<String, String> options = Terminal.options(args);
        Terminal.run(() -> receive(options));
    }

    private static void receive(Map<String, String> options) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("java-receive");
        consumer.setNamesrvAddr(options.get("namesrv"));
        consumer.setAutoCommit(false);
        consumer.start();
        Collection<MessageQueue> queues = consumer.fetchMessageQueues(options.get("topic"));
        consumer.assign(queues);
        for (MessageQueue queue : queues) {
            consumer.seekToBegin(queue);
        }
        long wanted = Long.parseLong(options.getOrDefault("count", "1"));
        long deadline = System.nanoTime() + 1_000_000_000L * Long.parseLong(options.getOrDefault("timeout", "30"));
        long received = 0;
        while (received < wanted && System.nanoTime() < deadline) {
            for (MessageExt message : consumer.poll(100)) {
                print(message);
                received++;
            }
        }
        consumer.shutdown();
    }

    /** Prints one message: the same line in every program. */
    static void print(MessageExt message) {
        Terminal.print(
            "topic", message.getTopic(),
            "body", Base64.getEncoder().encodeToString(message.getBody()),
            "tags", message.getTags(),
            "keys", message.getKeys(),
            "properties", message.getProperties(),
            "msgId", message.getMsgId(),
            "offsetMsgId", ((MessageClientExt) message).getOffsetMsgId(),
            "brokerName", message.getBrokerName(),
            "queueId", message.getQueueId(),
            "queueOffset", message.getQueueOffset(),
            "reconsumeTimes", message.getReconsumeTimes(),
            "bornTimestamp", message.getBornTimestamp());
    }
}
