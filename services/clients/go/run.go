package turnwright

import (
	"context"
	"errors"

	"google.golang.org/protobuf/proto"

	proposalsv1 "github.com/turnwright/turnwright/gen/go/turnwright/proposals/v1"
	runsv1 "github.com/turnwright/turnwright/gen/go/turnwright/runs/v1"
)

// Decision is what to do about a proposal. The zero value leaves it to somebody else.
type Decision struct {
	accept *proposalsv1.Accept
	reject *proposalsv1.Reject
}

// Accept lets it happen.
func Accept() Decision { return AcceptWith(&proposalsv1.Accept{}) }

// AcceptWith lets it happen with other contents, with a comment, or run by the caller.
func AcceptWith(how *proposalsv1.Accept) Decision { return Decision{accept: how} }

// Answer answers a question.
func Answer(text string) Decision { return AcceptWith(&proposalsv1.Accept{Answer: text}) }

// Reject forbids it. The model reads the comment and goes on; without a comment the loop ends.
func Reject(comment string) Decision { return Decision{reject: &proposalsv1.Reject{Comment: comment}} }

// Resolve carries out a decision. If somebody else was faster, the error is NotProposed, with what they decided.
func (c *Client) Resolve(ctx context.Context, project, run, path string, decision Decision) error {
	request := &proposalsv1.ResolveProposalRequest{Project: project, Run: run, Path: path}
	switch {
	case decision.accept != nil:
		request.Decision = &proposalsv1.ResolveProposalRequest_Accept{Accept: decision.accept}
	case decision.reject != nil:
		request.Decision = &proposalsv1.ResolveProposalRequest_Reject{Reject: decision.reject}
	default:
		return nil
	}
	_, err := c.Proposals.ResolveProposal(ctx, request)
	return err
}

// RunOption is what RunToEnd does on the way.
type RunOption func(*following)

type following struct {
	event  func(context.Context, *Event) error
	reply  func(context.Context, string) error
	decide func(context.Context, *Proposal) (Decision, error)
}

// OnEvent is given every event of the run. An error ends RunToEnd with it; the task goes on.
func OnEvent(handle func(context.Context, *Event) error) RunOption {
	return func(f *following) { f.event = handle }
}

// OnReply is given the prose of replies piece by piece, each once, also what was missed while the connection was lost. What a reply takes
// back once it is known to be no prose has been handed over.
func OnReply(show func(context.Context, string) error) RunOption {
	return func(f *following) { f.reply = show }
}

// OnProposal decides what the task proposes. Without it, proposals wait for somebody else. If somebody else is faster, their decision
// stands. An error ends RunToEnd with it; the proposal waits.
func OnProposal(decide func(context.Context, *Proposal) (Decision, error)) RunOption {
	return func(f *following) { f.decide = decide }
}

// RunToEnd waits until a task has ended, for days if necessary, and returns its loop: Status is 200, or says why it is not. If ctx ends
// before, the task goes on.
func (c *Client) RunToEnd(ctx context.Context, task *QueuedTask, options ...RunOption) (*Loop, error) {
	var chosen following
	for _, option := range options {
		option(&chosen)
	}
	sequence := task.Loop.GetSequence()
	view := RunView{Run: task.Run}
	asked := map[string]*Proposal{}
	var shown shownReply
	request := &WatchRunRequest{Project: task.Project, Run: task.Run.GetRun(), After: task.Cursor}
	for event, err := range c.Watch(ctx, request) {
		if err != nil {
			return nil, err
		}
		view.Apply(event)
		if chosen.event != nil {
			if err := chosen.event(ctx, event); err != nil {
				return nil, err
			}
		}
		if text := shown.grown(&view); chosen.reply != nil && text != "" {
			if err := chosen.reply(ctx, text); err != nil {
				return nil, err
			}
		}
		if chosen.decide != nil && view.Run.GetLoop().GetSequence() == sequence {
			if err := c.decideAll(ctx, task, &view, asked, chosen.decide); err != nil {
				return nil, err
			}
		}
		if loop := loopOf(event); loop.GetSequence() == sequence && loop.GetEndTime() != nil {
			return loop, nil
		}
		// Later loops are told of while they are queued, too: this one is over once the run is at one of them.
		if at := max(event.GetRunState().GetRun().GetLoop().GetSequence(), event.GetSnapshot().GetRun().GetLoop().GetSequence()); at > sequence {
			break
		}
	}
	return c.loop(ctx, task, sequence)
}

// shownReply is how much of a reply was handed over.
type shownReply struct {
	turn  uint32
	bytes int
}

// grown is what has come to the reply since; also to the one before, if its end was missed. A reply that began before is handed over whole.
func (s *shownReply) grown(view *RunView) string {
	text := ""
	if whole := view.Entries[replyPath(s.turn)].GetBody(); s.turn != 0 && view.Partial.turn() != s.turn && len(whole) > s.bytes {
		text, s.bytes = whole[s.bytes:], len(whole)
	}
	if partial := view.Partial; partial != nil {
		if partial.Turn != s.turn {
			s.turn, s.bytes = partial.Turn, 0
		}
		text += string(partial.content[min(s.bytes, len(partial.content)):])
		s.bytes = len(partial.content)
	}
	return text
}

// decideAll has what waits decided, each proposal once as long as it stays the same.
func (c *Client) decideAll(ctx context.Context, task *QueuedTask, view *RunView, asked map[string]*Proposal, decide func(context.Context, *Proposal) (Decision, error)) error {
	for path, proposal := range view.Proposals {
		if proposal.GetClientTool() != nil || proto.Equal(asked[path], proposal) {
			continue
		}
		asked[path] = proposal
		decision, err := decide(ctx, proposal)
		if err == nil {
			err = c.Resolve(ctx, task.Project, task.Run.GetRun(), path, decision)
		}
		if err != nil && !errors.Is(err, NotProposed) {
			return err
		}
	}
	return nil
}

// loopOf is the loop that an event tells of, or nil.
func loopOf(event *Event) *Loop {
	if snapshot := event.GetSnapshot(); snapshot.GetLast() {
		return snapshot.GetRun().GetLoop()
	}
	return event.GetRunState().GetLoop()
}

// loop is one of the latest hundred loops of a run.
func (c *Client) loop(ctx context.Context, task *QueuedTask, sequence uint32) (*Loop, error) {
	answer, err := c.Runs.GetRun(ctx, &runsv1.GetRunRequest{Project: task.Project, Run: task.Run.GetRun()})
	if err != nil {
		return nil, err
	}
	for _, loop := range answer.Loops {
		if loop.GetSequence() == sequence {
			return loop, nil
		}
	}
	return nil, errors.New("turnwright: the loop is not among the latest hundred of its run")
}
