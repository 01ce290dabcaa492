"""The app for a SuperNode with Flower's own executor. It checks no limits, so it does nothing."""

from flwr.clientapp import ClientApp

app = ClientApp()
