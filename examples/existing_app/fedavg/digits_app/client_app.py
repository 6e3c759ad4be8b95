"""What a client does: train, and evaluate."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from digits_app.task import accuracy, get_weights, load_data, new_model, set_weights, train

app = ClientApp()


def prepared(msg: Message, context: Context):
    """This client's data, and the model as the server sent it."""
    config = {**context.run_config, **msg.content["config"]}
    data = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    model = new_model(config["learning-rate"], config["penalty"])
    return config, data, set_weights(model, msg.content["arrays"].to_numpy_ndarrays())


@app.train()
def train_on_own_data(msg: Message, context: Context) -> Message:
    config, (x, _, y, _), model = prepared(msg, context)
    train(model, x, y, int(config["local-epochs"]))
    metrics = MetricRecord({"num-examples": len(y)})
    arrays = ArrayRecord(get_weights(model))
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=msg)


@app.evaluate()
def evaluate_on_own_data(msg: Message, context: Context) -> Message:
    _, (_, x, _, y), model = prepared(msg, context)
    metrics = MetricRecord({"num-examples": len(y), "accuracy": accuracy(model, x, y)})
    return Message(RecordDict({"metrics": metrics}), reply_to=msg)
