import java.util.Map;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.AccessChannel;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * How every program here reaches its cluster. Options: --namesrv ADDRESS, and optionally --namespace NAMESPACE,
 * --namespace-v2 NAMESPACE (5.x), --access-key KEY with --secret-key KEY and --security-token TOKEN, and
 * --access-channel CLOUD, by which trace records go to the topics of their regions.
 */
final class Access {
    // By default 3 s, in which a busy machine may still be loading a client's classes.
    private static final int PATIENCE_MS = 30_000;

    private Access() {
    }

    /** Returns the hook that signs requests, or null without an access key. */
    static RPCHook hook(Map<String, String> options) {
        if (!options.containsKey("access-key")) {
            return null;
        }
        return new AclClientRPCHook(new SessionCredentials(
            options.get("access-key"), options.get("secret-key"), options.get("security-token")));
    }

    @SuppressWarnings("deprecation") // 5.x has a second kind of namespace beside this one.
    static <T extends ClientConfig> T to(Map<String, String> options, T client) {
        client.setNamesrvAddr(options.get("namesrv"));
        client.setMqClientApiTimeout(PATIENCE_MS);
        if (client instanceof DefaultMQProducer) {
            ((DefaultMQProducer) client).setSendMsgTimeout(PATIENCE_MS);
        }
        if (options.containsKey("namespace")) {
            client.setNamespace(options.get("namespace"));
        }
        if (options.containsKey("access-channel")) {
            client.setAccessChannel(AccessChannel.valueOf(options.get("access-channel")));
        }
        if (options.containsKey("namespace-v2")) {
            setNamespaceV2(client, options.get("namespace-v2"));
        }
        return client;
    }

    /** Clients of 4.x, for which this is compiled as well, do not have the method. */
    private static void setNamespaceV2(ClientConfig client, String namespace) {
        try {
            ClientConfig.class.getMethod("setNamespaceV2", String.class).invoke(client, namespace);
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }
}
