// Sends spans with the SDK: node send.cjs PROTOCOL URL COUNT, as a service would that has the SDK.
const { SpanKind, SpanStatusCode } = require("@opentelemetry/api");
const { resourceFromAttributes } = require("@opentelemetry/resources");
const { BasicTracerProvider, BatchSpanProcessor } = require("@opentelemetry/sdk-trace-base");

const [protocol, url, count] = process.argv.slice(2);
const packages = {
  "http/json": "@opentelemetry/exporter-trace-otlp-http",
  "http/protobuf": "@opentelemetry/exporter-trace-otlp-proto",
  grpc: "@opentelemetry/exporter-trace-otlp-grpc",
};
const { OTLPTraceExporter } = require(packages[protocol]);
const exporter = new OTLPTraceExporter({ url, compression: "gzip" });
const provider = new BasicTracerProvider({
  resource: resourceFromAttributes({ "service.name": "js" }),
  spanProcessors: [new BatchSpanProcessor(exporter)],
});
const tracer = provider.getTracer("test");
for (let i = 0; i < Number(count); i++) {
  const span = tracer.startSpan(`span ${i}`, { kind: SpanKind.SERVER });
  span.setAttribute("n", i);
  span.setAttribute("ratio", 0.5);
  span.setAttribute("tags", ["a", "b"]);
  span.recordException(new Error("no user 4711"));
  span.setStatus({ code: SpanStatusCode.ERROR, message: "no user 4711" });
  span.end();
}
provider.shutdown().catch((error) => {
  console.error(error);
  process.exit(1);
});
