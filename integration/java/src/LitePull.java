import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A member of a consumer group that polls: prints {"ready": client id} when it has joined, then every message
 * that it got. It goes on until it is ended, or has got enough; by SIGTERM it says goodbye first.
 * Options: --namesrv ADDRESS, --group GROUP, --topic TOPIC, and optionally --count N (then it commits, says
 * goodbye and ends), and those of Access.
 */
public class LitePull {
    public static void main(String[] args) {
        Map<String, String> options = Terminal.options(args);
        Terminal.run(() -> poll(options));
    }

    @SuppressWarnings("deprecation") // 5.x says commit(), which 4.x does not know.
    private static void poll(Map<String, String> options) throws Exception {
        DefaultLitePullConsumer consumer = Access.to(
            options, new DefaultLitePullConsumer(options.get("group"), Access.hook(options)));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(options.get("topic"), "*");
        consumer.start();
        Runtime.getRuntime().addShutdownHook(new Thread(consumer::shutdown));
        Terminal.print("ready", consumer.buildMQClientId());
        long wanted = Long.parseLong(options.getOrDefault("count", String.valueOf(Long.MAX_VALUE)));
        for (long received = 0; received < wanted; ) {
            for (MessageExt message : consumer.poll(1000)) {
                Receive.print(message);
                received++;
            }
        }
        consumer.commitSync(); // into its own store, which writes when it shuts down
    }
}
