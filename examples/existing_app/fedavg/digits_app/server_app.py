"""What the server does: federated averaging."""

from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from digits_app.task import get_weights, new_model

app = ServerApp()


def federated_training(grid: Grid, rounds: int, config: ConfigRecord) -> float:
    """Train a new model with FedAvg: the clients' accuracy in the end."""
    arrays = ArrayRecord(get_weights(new_model(learning_rate=0.01, penalty=0.0001)))
    result = FedAvg().start(grid, arrays, rounds, train_config=config)
    return float(result.evaluate_metrics_clientapp[rounds]["accuracy"])


@app.main()
def main(grid: Grid, context: Context) -> None:
    rounds = int(context.run_config["num-server-rounds"])
    print("accuracy", federated_training(grid, rounds, ConfigRecord()))
