package turnwright

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	executorv1 "github.com/turnwright/turnwright/gen/go/turnwright/executor/v1"
)

// retriesMax bounds the retries of one call; the last one starts about two seconds after the first attempt.
const retriesMax = 4

// unary gives a call its deadline and its request id, and repeats it if that is safe.
func (c *Client) unary(ctx context.Context, method string, request, answer any, connection *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	if _, bounded := ctx.Deadline(); !bounded && !lasts(method, request) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.timeout)
		defer cancel()
	}
	request, repeatable := identified(method, request)
	for failures := 1; ; failures++ {
		err := failure(ctx, connection.Target(), invoke(ctx, method, request, answer, connection, options...))
		if err == nil || !repeatable || failures > retriesMax || ctx.Err() != nil || !isPassing(err) {
			return err
		}
		if !sleep(ctx, pause(failures)) {
			return err
		}
	}
}

// stream makes the failures of a stream errors of this package.
func (c *Client) stream(ctx context.Context, description *grpc.StreamDesc, connection *grpc.ClientConn, method string, open grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
	opened, err := open(ctx, description, connection, method, options...)
	if err != nil {
		return nil, failure(ctx, connection.Target(), err)
	}
	return failing{opened, connection.Target()}, nil
}

type failing struct {
	grpc.ClientStream
	address string
}

func (f failing) RecvMsg(message any) error {
	return failure(f.Context(), f.address, f.ClientStream.RecvMsg(message))
}
func (f failing) SendMsg(message any) error {
	return failure(f.Context(), f.address, f.ClientStream.SendMsg(message))
}

// lasts is whether a call takes as long as what it asks for: a command, or vendors.
func lasts(method string, request any) bool {
	status, ok := request.(*executorv1.GetStatusRequest)
	return method == executorv1.ExecutorService_CallTool_FullMethodName || ok && status.CheckModels
}

// identified is the request with an id by which a repeated call is carried out once, and whether the call may be repeated. What the
// caller has passed stays as it is: passed once more, it is another request.
func identified(method string, request any) (any, bool) {
	message, ok := request.(proto.Message)
	if !ok {
		return request, false
	}
	given := message.ProtoReflect()
	task := given.Descriptor().Fields().ByName("task")
	within := given
	if task != nil && task.Message() != nil && given.Has(task) {
		within = given.Get(task).Message()
	}
	for _, name := range []protoreflect.Name{"request_id", "command_id"} {
		field := within.Descriptor().Fields().ByName(name)
		if field == nil || field.Kind() != protoreflect.StringKind {
			continue
		}
		if within.Get(field).String() != "" {
			return request, true
		}
		message = proto.Clone(message)
		within = message.ProtoReflect()
		if task != nil && given.Has(task) {
			within = within.Mutable(task).Message()
		}
		within.Set(field, protoreflect.ValueOfString(newID()))
		return message, true
	}
	return request, isIdempotent(method)
}

// isIdempotent is what the contract says of a call.
func isIdempotent(method string) bool {
	name := protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(method, "/"), "/", "."))
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	if err != nil {
		return false
	}
	options, ok := found.Options().(*descriptorpb.MethodOptions)
	return ok && options.GetIdempotencyLevel() != descriptorpb.MethodOptions_IDEMPOTENCY_UNKNOWN
}

func newID() string {
	id := make([]byte, 16)
	rand.Read(id)
	return hex.EncodeToString(id)
}

// isPassing is whether the same call may succeed in a moment, or at another replica.
func isPassing(err error) bool {
	var failed *Error
	if !errors.As(err, &failed) {
		return false
	}
	switch failed.Reason {
	case ServiceUnavailable, Draining:
		return true
	case "": // of a proxy or the connection, unless it says that the call can never be made
		return failed.Code() == codes.Unavailable || failed.Code() == codes.Internal ||
			failed.Code() == codes.Unknown || failed.Code() == codes.Canceled
	}
	return false
}

const (
	pauseFirst   = 100 * time.Millisecond
	pauseLongest = 5 * time.Second
)

// pause is how long to wait after this many failures in a row, at least one.
func pause(failures int) time.Duration {
	return min(pauseFirst<<min(failures-1, 10), pauseLongest)
}

// sleep is whether ctx lets it sleep so long.
func sleep(ctx context.Context, long time.Duration) bool {
	if end, bounded := ctx.Deadline(); bounded && time.Until(end) <= long {
		return false
	}
	timer := time.NewTimer(long)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
