import java.util.Map;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.trace.TraceView;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Finds the trace of a message as Java's console does, by the key index of the trace topic, and prints each record.
 * Options: --namesrv ADDRESS, --id MESSAGE_ID, and optionally --topic TRACE_TOPIC, --count N (waits for so many),
 * --timeout SECONDS, and those of Access.
 */
public class Trace {
    public static void main(String[] args) {
        Map<String, String> options = Terminal.options(args);
        Terminal.run(() -> trace(options));
    }

    @SuppressWarnings("deprecation") // Any client of Java's can query; this one starts nothing else.
    private static void trace(Map<String, String> options) throws Exception {
        String topic = options.getOrDefault("topic", "RMQ_SYS_TRACE_TOPIC");
        String id = options.get("id");
        int wanted = Integer.parseInt(options.getOrDefault("count", "1"));
        long deadline = System.nanoTime() + 1_000_000_000L * Long.parseLong(options.getOrDefault("timeout", "30"));
        DefaultMQPullConsumer client = Access.to(options, new DefaultMQPullConsumer("java-trace", Access.hook(options)));
        client.start();
        while (true) {
            int found = 0;
            StringBuilder ignored = new StringBuilder();
            try {
                QueryResult result = client.queryMessage(topic, id, 64, 0, System.currentTimeMillis() + 3_600_000);
                for (MessageExt message : result.getMessageList()) {
                    found += TraceView.decodeFromTraceTransData(id, message).size();
                }
                if (found >= wanted) {
                    for (MessageExt message : result.getMessageList()) {
                        for (TraceView view : TraceView.decodeFromTraceTransData(id, message)) {
                            print(view);
                        }
                    }
                    break;
                }
            } catch (MQClientException error) {
                ignored.append(error.getMessage()); // nothing found yet
            }
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException(found + " records of " + id + " found; " + ignored);
            }
            Thread.sleep(100);
        }
        client.shutdown();
    }

    private static void print(TraceView view) {
        Terminal.print(
            "type", view.getMsgType(),
            "id", view.getMsgId(),
            "offsetId", view.getOffSetMsgId(),
            "topic", view.getTopic(),
            "group", view.getGroupName(),
            "tags", view.getTags(),
            "keys", view.getKeys(),
            "storeHost", view.getStoreHost(),
            "costTime", view.getCostTime(),
            "timeStamp", view.getTimeStamp(),
            "status", view.getStatus());
    }
}
