package turnwright

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const domain = "turnwright"

// Reason says why a call failed: the name of an ErrorReason of the contract without its prefix, such as ENTRY_NOT_FOUND. It is an error,
// so that errors.Is can look for it.
type Reason string

// Error is the name.
func (r Reason) Error() string { return string(r) }

// Error is how a call failed.
type Error struct {
	// Reason is ServiceUnavailable also if no connection could be made. It is empty if a proxy or the connection has ended the call: then
	// nobody knows whether it was carried out.
	Reason Reason
	// Metadata has the values that the contract lists for the reason.
	Metadata map[string]string

	status *status.Status
	cause  error
}

// Error is the reason and a text for people.
func (e *Error) Error() string {
	if e.Reason == "" {
		return e.status.Code().String() + ": " + e.status.Message()
	}
	return string(e.Reason) + ": " + e.status.Message()
}

// Message is the text for people, without the reason.
func (e *Error) Message() string { return e.status.Message() }

// Code is the status code of gRPC.
func (e *Error) Code() codes.Code { return e.status.Code() }

// GRPCStatus is the status as it came; status.Code and status.FromError use it.
func (e *Error) GRPCStatus() *status.Status { return e.status }

// Is tells errors.Is whether target is the reason.
func (e *Error) Is(target error) bool {
	reason, ok := target.(Reason)
	return ok && reason == e.Reason
}

// Unwrap is the error of the context, if that has ended the call.
func (e *Error) Unwrap() error { return e.cause }

// undialled is in the text of gRPC where nothing took a connection.
const undialled = "transport: Error while dialing: "

// failure is the error of a call to the executor at an address, for its caller. The end of a stream stays io.EOF.
func failure(ctx context.Context, address string, err error) error {
	var known *Error
	if err == nil || err == io.EOF || errors.As(err, &known) {
		return err
	}
	made := &Error{status: status.Convert(err), cause: ctx.Err()}
	if _, why, ok := strings.Cut(made.Message(), undialled); ok && made.Code() == codes.Unavailable {
		text := fmt.Sprintf("The executor at %s does not answer: %s. Is it running there, for instance by `turnwright serve`?",
			address, strings.TrimSuffix(why, `"`))
		made.Reason, made.Metadata = ServiceUnavailable, map[string]string{"service": "executor", "address": address}
		made.status = status.New(codes.Unavailable, text)
	}
	for _, detail := range made.status.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.Domain == domain {
			made.Reason, made.Metadata = Reason(info.Reason), info.Metadata
		}
	}
	return made
}

// ended is the error of a call whose context has ended, which it wraps.
func ended(ctx context.Context) *Error {
	return &Error{status: status.FromContextError(ctx.Err()), cause: ctx.Err()}
}

func fault(code codes.Code, reason Reason, message string, metadata map[string]string) *Error {
	return &Error{Reason: reason, Metadata: metadata, status: status.New(code, message)}
}
