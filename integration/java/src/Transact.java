import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A transaction producer: prints {"ready": group} after its start, then the message that it sent, and then each half
 * message that a broker checks. Runs until it is terminated.
 * Options: --namesrv ADDRESS, --group GROUP; optional: --topic TOPIC with --body TEXT (sends this message), --outcome
 * STATE (the result of the local transaction), --check STATE (the answer to checks), and those of Access.
 * A STATE is one of LocalTransactionState, by default UNKNOW.
 */
public class Transact {
    // The class with the codes is in another package in each version. 5.x retries by default.
    private static final int SYSTEM_BUSY = 2;

    public static void main(String[] args) {
        Map<String, String> options = Terminal.options(args);
        Terminal.run(() -> transact(options));
    }

    private static void transact(Map<String, String> options) throws Exception {
        TransactionMQProducer producer = Access.to(options,
            new TransactionMQProducer(options.get("group"), Access.hook(options)));
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return state(options, "outcome");
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                Terminal.print(
                    "asked", message.getTransactionId(),
                    "topic", message.getTopic(),
                    "body", Base64.getEncoder().encodeToString(message.getBody()),
                    "tags", message.getTags(),
                    "queueId", message.getQueueId());
                return state(options, "check");
            }
        });
        producer.addRetryResponseCode(SYSTEM_BUSY);
        producer.start();
        Terminal.print("ready", options.get("group"));
        if (options.containsKey("body")) {
            byte[] body = options.get("body").getBytes(StandardCharsets.UTF_8);
            Message message = new Message(options.get("topic"), "TagT", body);
            TransactionSendResult result = producer.sendMessageInTransaction(message, null);
            Terminal.print(
                "msgId", result.getMsgId(),
                "queueId", result.getMessageQueue().getQueueId(),
                "state", result.getLocalTransactionState().name());
        }
        new CountDownLatch(1).await();
    }

    private static LocalTransactionState state(Map<String, String> options, String name) {
        return LocalTransactionState.valueOf(options.getOrDefault(name, "UNKNOW"));
    }
}
