import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.rocketmq.client.consumer.AckCallback;
import org.apache.rocketmq.client.consumer.AckResult;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PopCallback;
import org.apache.rocketmq.client.consumer.PopResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.constant.ConsumeInitMode;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageRequestMode;
import org.apache.rocketmq.remoting.protocol.header.PopMessageRequestHeader;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** The steps of Capture that only 5.x knows: timed messages, recall, pop. */
public class CaptureFive implements Terminal.Work {
    private static final String GROUP = "capture-pop";

    @Override
    public void run() throws Exception {
        timed();
        // Its codes from 200050 on do not fit into the 16 bits that this header has for a code.
        if (!"ROCKETMQ".equals(System.getProperty("rocketmq.serialize.type"))) {
            pop();
        }
    }

    private static void timed() throws Exception {
        DefaultMQProducer producer = Capture.named(new DefaultMQProducer("capture-timed"), "timed");
        producer.start();
        Message soon = new Message(Capture.TOPIC, "TagD", Capture.bytes("in a second"));
        soon.setDelayTimeMs(1000);
        Capture.step("timed by milliseconds", () -> producer.send(soon));
        Message seconds = new Message(Capture.TOPIC, "TagD", Capture.bytes("in two seconds"));
        seconds.setDelayTimeSec(2);
        Capture.step("timed by seconds", () -> producer.send(seconds));
        Message never = new Message(Capture.TOPIC, "TagD", Capture.bytes("recalled"));
        never.setDeliverTimeMs(System.currentTimeMillis() + 3_600_000);
        SendResult sent = producer.send(never);
        Capture.step("recall", () -> producer.recallMessage(Capture.TOPIC, sent.getRecallHandle()));
        Capture.refused("recall nonsense", () -> producer.recallMessage(Capture.TOPIC, "bm9uc2Vuc2U"));
        producer.shutdown();
    }

    private static void pop() throws Exception {
        DefaultMQAdminExt admin = Capture.named(new DefaultMQAdminExt(), "pop-admin");
        admin.start();
        String broker = admin.examineTopicRouteInfo(Capture.TOPIC).getBrokerDatas().get(0).selectBrokerAddr();
        Capture.step("pop mode", () ->
            admin.setMessageRequestMode(broker, Capture.TOPIC, GROUP, MessageRequestMode.POP, 0, 3000));
        admin.shutdown();
        CountDownLatch consumed = new CountDownLatch(3);
        AtomicBoolean failed = new AtomicBoolean();
        DefaultMQPushConsumer consumer = Capture.pushConsumer(GROUP, "pop");
        consumer.subscribe(Capture.TOPIC, "*");
        consumer.setClientRebalance(false);
        consumer.setPopInvisibleTime(30_000);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            if (failed.compareAndSet(false, true)) {
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
            messages.forEach(message -> consumed.countDown());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        Capture.await("popped messages", consumed);
        Capture.letAnswersCome();
        poppedByHand(consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().getMQClientAPIImpl(), broker);
        consumer.shutdown();
    }

    /** Requests that the client's consumers do not send: batch acknowledgements, and pop in order. */
    private static void poppedByHand(MQClientAPIImpl api, String broker) throws Exception {
        PopResult popped = pop(api, broker, "capture-batch-ack", null);
        List<String> handles = new ArrayList<>();
        for (MessageExt message : popped.getMsgFoundList()) {
            handles.add(message.getProperty(MessageConst.PROPERTY_POP_CK));
        }
        Capture.step("batch ack", () -> {
            CompletableFuture<AckResult> acknowledged = new CompletableFuture<>();
            api.batchAckMessageAsync(broker, 3000, new Acknowledged(acknowledged), Capture.TOPIC,
                "capture-batch-ack", handles);
            acknowledged.get(10, TimeUnit.SECONDS);
        });
        Capture.step("pop in order", () -> pop(api, broker, "capture-in-order", "attempt-1"));
        Capture.step("pop in order again", () -> pop(api, broker, "capture-in-order", "attempt-1"));
    }

    private static PopResult pop(MQClientAPIImpl api, String broker, String group, String attempt) throws Exception {
        PopMessageRequestHeader header = new PopMessageRequestHeader();
        header.setConsumerGroup(group);
        header.setTopic(Capture.TOPIC);
        header.setQueueId(-1);
        header.setMaxMsgNums(32);
        header.setInvisibleTime(30_000);
        header.setPollTime(5000);
        header.setBornTime(System.currentTimeMillis());
        header.setInitMode(ConsumeInitMode.MIN);
        header.setOrder(attempt != null);
        header.setAttemptId(attempt);
        header.setBrokerName("broker-a");
        CompletableFuture<PopResult> popped = new CompletableFuture<>();
        api.popMessageAsync("broker-a", broker, header, 10_000, new PopCallback() {
            @Override
            public void onSuccess(PopResult result) {
                popped.complete(result);
            }

            @Override
            public void onException(Throwable error) {
                popped.completeExceptionally(error);
            }
        });
        return popped.get(15, TimeUnit.SECONDS);
    }

    private record Acknowledged(CompletableFuture<AckResult> result) implements AckCallback {
        @Override
        public void onSuccess(AckResult acknowledged) {
            result.complete(acknowledged);
        }

        @Override
        public void onException(Throwable error) {
            result.completeExceptionally(error);
        }
    }
}
