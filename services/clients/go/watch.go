package turnwright

import (
	"context"
	"errors"
	"io"
	"iter"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	executorv1 "github.com/turnwright/turnwright/gen/go/turnwright/executor/v1"
	proposalsv1 "github.com/turnwright/turnwright/gen/go/turnwright/proposals/v1"
	runsv1 "github.com/turnwright/turnwright/gen/go/turnwright/runs/v1"
)

// Version is the release that this package belongs to. An executor of another major version is refused by WatchRuns.
const Version = "0.1.0"

const (
	// unansweredMax bounds the connections in a row on which no executor answered; the last one begins about 18 seconds after the first.
	unansweredMax = 8
	// silenceMax ends a connection: an executor sends a heartbeat every 15 seconds.
	silenceMax = 60 * time.Second
)

var errSilent = errors.New("the executor was silent for a minute, without a heartbeat")

// errAgain ends a stream in place of which another one is opened.
var errAgain = errors.New("the watch begins again")

// receiver is a stream of a watch.
type receiver[M any] interface{ Recv() (M, error) }

// follow hands over what comes, stream after stream, until take returns an error or a failure is one that the next stream would meet
// again. Its error is never nil.
func follow[M any, R receiver[M]](ctx context.Context, open func(context.Context) (R, error), take func(M) error) error {
	failures, unanswered := 0, 0
	for {
		err := receive(ctx, open, func(message M) error {
			failures, unanswered = 0, 0
			return take(message)
		})
		switch {
		case errors.Is(err, errStopped):
			return err
		case ctx.Err() != nil:
			return ended(ctx)
		}
		failures++
		unanswered++
		switch {
		case err == io.EOF || errors.Is(err, errAgain): // a proxy closes a stream that is idle; whoever answered is there
			unanswered = 0
		case !goesOn(err) || unanswered > unansweredMax:
			return err
		}
		if !sleep(ctx, pause(failures)) {
			<-ctx.Done()
			return ended(ctx)
		}
	}
}

// errStopped is that of whoever reads: the loop over a watch was left.
var errStopped = errors.New("nobody reads any more")

// receive reads one stream to its end, or to the error of take. While take is at work, nothing counts as silence.
func receive[M any, R receiver[M]](ctx context.Context, open func(context.Context) (R, error), take func(M) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(silenceMax, func() { cancel(errSilent) })
	defer silence.Stop()
	stream, err := open(ctx)
	for err == nil {
		var message M
		if message, err = stream.Recv(); err == nil {
			silence.Stop()
			err = take(message)
			silence.Reset(silenceMax)
		}
	}
	if context.Cause(ctx) == errSilent && !errors.Is(err, errStopped) {
		return fault(codes.Unavailable, "", errSilent.Error(), nil)
	}
	return err
}

// goesOn is whether a watch may go on with another stream after an error: the executor is away, or a proxy has ended the stream.
func goesOn(err error) bool {
	var failed *Error
	if !errors.As(err, &failed) {
		return false
	}
	if failed.Reason == "" {
		return failed.Code() != codes.Unimplemented
	}
	return failed.Code() == codes.Unavailable || failed.Reason == LeaseLost
}

// Watch iterates over the events of a run: those after request.After, or a snapshot and then each event as it happens. When the
// connection is lost it goes on after the last event, for as long as ctx lives. It ends with an error, which comes without an event:
// that of ctx, one that the next stream would meet again, or the last one if no executor has answered for a while.
//
// Snapshots replace everything that came before; they may come at any time, in several parts. What comes is meant to be folded by a
// [RunView], whose Cursor is where another Watch, or another process, goes on.
func (c *Client) Watch(ctx context.Context, request *WatchRunRequest) iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		asked := proto.Clone(request).(*WatchRunRequest)
		asked.Batched = true
		open := func(ctx context.Context) (executorv1.ExecutorService_WatchRunClient, error) {
			return c.Executor.WatchRun(ctx, asked)
		}
		for {
			err := follow(ctx, open, func(message *Event) error {
				events := []*Event{message}
				if batch := message.GetBatch(); batch != nil {
					events = batch.Events
				}
				for _, event := range events {
					if isBehindGap(event, asked.After) {
						asked.After = nil
						return errAgain
					}
					// Parts of a snapshot count when the last one is there, and a heartbeat tells of nothing.
					if snapshot := event.GetSnapshot(); event.GetHeartbeat() == nil && (snapshot == nil || snapshot.Last) {
						asked.After = event.Cursor
					}
					if !yield(event, nil) {
						return errStopped
					}
				}
				return nil
			})
			switch {
			case errors.Is(err, errStopped):
				return
			case errors.Is(err, CursorForeign) && asked.After != nil:
				asked.After = nil // of a store that was restored since: there will be a snapshot
			default:
				yield(nil, err)
				return
			}
		}
	}
}

// isBehindGap is whether events are missing before this one, or it comes once more: only a snapshot can make up for that.
func isBehindGap(event *Event, before *EventCursor) bool {
	switch event.Event.(type) {
	case *executorv1.WatchRunResponse_Snapshot, *executorv1.WatchRunResponse_Heartbeat, *executorv1.WatchRunResponse_PlanUpdated,
		*executorv1.WatchRunResponse_PlanRemoved, *executorv1.WatchRunResponse_LegacyPlan:
		return false // they may repeat a number
	}
	return before == nil || event.Cursor.GetEpoch() != before.Epoch || event.Cursor.GetSeq() != before.Seq+1
}

// WatchRuns iterates over what happens to the runs of a project: a snapshot, or what has happened since request.After, then each change.
// It goes on after a lost connection as [Client.Watch] does. [RunList] folds its messages.
func (c *Client) WatchRuns(ctx context.Context, request *runsv1.WatchRunsRequest) iter.Seq2[*runsv1.WatchRunsResponse, error] {
	asked := proto.Clone(request).(*runsv1.WatchRunsRequest)
	return watched(ctx, func(ctx context.Context) (runsv1.RunService_WatchRunsClient, error) {
		return c.Runs.WatchRuns(ctx, asked)
	}, func(message *runsv1.WatchRunsResponse) error {
		if message.Cursor != "" {
			asked.After = message.Cursor
		}
		found := message.GetHello().GetVersion()
		if message.GetHello() == nil || major(found) == major(Version) {
			return nil
		}
		return fault(codes.FailedPrecondition, VersionMismatch,
			"The executor has version "+found+", this client "+Version+": their major versions must be the same.",
			map[string]string{"version": found, "client": Version})
	})
}

func major(version string) string {
	first, _, _ := strings.Cut(version, ".")
	return first
}

// WatchProposals iterates over the proposals that wait for a decision, and then over those that come and go. After a lost connection all
// that wait come again, up to the message with Complete: those missing by then have been decided.
func (c *Client) WatchProposals(ctx context.Context, request *proposalsv1.WatchProposalsRequest) iter.Seq2[*proposalsv1.WatchProposalsResponse, error] {
	return watched(ctx, func(ctx context.Context) (proposalsv1.ProposalService_WatchProposalsClient, error) {
		return c.Proposals.WatchProposals(ctx, request)
	}, func(*proposalsv1.WatchProposalsResponse) error { return nil })
}

// watched iterates over the messages of stream after stream; note is told of each before whoever reads is.
func watched[M any, R receiver[M]](ctx context.Context, open func(context.Context) (R, error), note func(M) error) iter.Seq2[M, error] {
	return func(yield func(M, error) bool) {
		err := follow(ctx, open, func(message M) error {
			if err := note(message); err != nil {
				return err
			}
			if !yield(message, nil) {
				return errStopped
			}
			return nil
		})
		if !errors.Is(err, errStopped) {
			var none M
			yield(none, err)
		}
	}
}
