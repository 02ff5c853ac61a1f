"""A collector that drops what it is sent: `python otlp_sink.py ADDRESS`."""

import sys
from concurrent import futures

import grpc
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2, logs_service_pb2_grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc


class Sink(
    trace_service_pb2_grpc.TraceServiceServicer,
    metrics_service_pb2_grpc.MetricsServiceServicer,
    logs_service_pb2_grpc.LogsServiceServicer,
):
    """Takes traces, metrics and events."""

    def Export(self, request, _context):
        if isinstance(request, metrics_service_pb2.ExportMetricsServiceRequest):
            return metrics_service_pb2.ExportMetricsServiceResponse()
        if isinstance(request, logs_service_pb2.ExportLogsServiceRequest):
            return logs_service_pb2.ExportLogsServiceResponse()
        return trace_service_pb2.ExportTraceServiceResponse()


server = grpc.server(futures.ThreadPoolExecutor(2))
trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Sink(), server)
metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(Sink(), server)
logs_service_pb2_grpc.add_LogsServiceServicer_to_server(Sink(), server)
server.add_insecure_port(sys.argv[1])
server.start()
server.wait_for_termination()
