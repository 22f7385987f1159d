import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Reads a topic from its first offsets, without sharing it with a group, and prints every message.
 * Options: --namesrv ADDRESS, --topic TOPIC, and optionally --count N (ends when so many have come),
 * --timeout SECONDS (ends after that, however many have come), --group GROUP, and those of Access.
 */
public class Receive {
    public static void main(String[] args) {
        Map<String, String> options = Terminal.options(args);
        Terminal.run(() -> receive(options));
    }

    @SuppressWarnings("deprecation") // The lite pull consumer may lose messages pulled during a seek.
    private static void receive(Map<String, String> options) throws Exception {
        String group = options.getOrDefault("group", "java-receive");
        DefaultMQPullConsumer consumer =
            Access.to(options, new DefaultMQPullConsumer(group, Access.hook(options)));
        consumer.start();
        Map<MessageQueue, Long> offsets = new HashMap<>();
        for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(options.get("topic"))) {
            offsets.put(queue, consumer.minOffset(queue));
        }
        long wanted = Long.parseLong(options.getOrDefault("count", "1"));
        long deadline = System.nanoTime() + 1_000_000_000L * Long.parseLong(options.getOrDefault("timeout", "30"));
        long received = 0;
        while (received < wanted && System.nanoTime() < deadline) {
            for (Map.Entry<MessageQueue, Long> entry : offsets.entrySet()) {
                PullResult result = consumer.pull(entry.getKey(), "*", entry.getValue(), 32);
                entry.setValue(result.getNextBeginOffset());
                if (result.getPullStatus() == PullStatus.FOUND) {
                    for (MessageExt message : result.getMsgFoundList()) {
                        print(message);
                        received++;
                    }
                }
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
