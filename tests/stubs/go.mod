module github.com/turnwright/turnwright/gen/go

// Old on purpose: these build with the Go of Debian 12, and with every later one.
go 1.19

require (
	google.golang.org/grpc v1.62.2
	google.golang.org/protobuf v1.33.0
)

require (
	github.com/golang/protobuf v1.5.3 // indirect
	golang.org/x/net v0.20.0 // indirect
	golang.org/x/sys v0.16.0 // indirect
	golang.org/x/text v0.14.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20240123012728-ef4313101c80 // indirect
)
