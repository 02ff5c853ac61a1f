package turnwright

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	executorv1 "github.com/turnwright/turnwright/gen/go/turnwright/executor/v1"
	runsv1 "github.com/turnwright/turnwright/gen/go/turnwright/runs/v1"
	typesv1 "github.com/turnwright/turnwright/gen/go/turnwright/types/v1"
)

const (
	// Bodies are cut off after so many bytes of UTF-8, as in events; those of messages are whole.
	bodyMax      = 16 << 20
	eventBodyMax = 16 << 10
)

// RunView is the state of a run according to its events. The zero value knows nothing; one for a run that a call has returned may begin
// with its Run. Messages in it are shared with the events: they are to be read only. It is for one goroutine at a time.
type RunView struct {
	// Run has the settings and the active or latest loop; nil before anything is known.
	Run *Run
	// State is what the run is doing.
	State typesv1.SessionState
	// Entries are those of the timeline, by path. Bodies of prompts, replies and reasoning are whole, others truncated after 16384 bytes.
	Entries map[string]*Entry
	// Proposals are those that wait for a decision, by path.
	Proposals map[string]*Proposal
	// Partial is the reply that is being streamed; nil: there is none.
	Partial *Partial
	// Plans are in the order in which they first appeared. Only of a watch with Plans PLAN_EVENTS_OPERATIONS.
	Plans []*typesv1.Plan
	// LegacyPlan is all plans as one list. Only of a watch with Plans PLAN_EVENTS_LEGACY.
	LegacyPlan []*typesv1.PlanItem
	// Queue is what waits, the next one first.
	Queue []*typesv1.QueuedCommand
	// PauseReasons are why the run is paused.
	PauseReasons []*executorv1.PauseReason
	// Compression is that of the history; nil: it is not being compressed.
	Compression *typesv1.HistoryCompression
	// Draft is that of the next message; nil: there is none.
	Draft *string
	// DraftUsage is what the draft would take of the context window.
	DraftUsage *typesv1.DraftUsage
	// Cursor is the position of the state: a watch after it goes on from here.
	Cursor *EventCursor

	parts []*executorv1.Snapshot
}

// Apply folds an event in. Kinds that change nothing are ignored, unknown ones too. A snapshot counts when its last part is there.
func (v *RunView) Apply(event *Event) {
	if event.GetEvent() == nil || event.GetHeartbeat() != nil {
		return
	}
	v.fold(event)
	if snapshot := event.GetSnapshot(); snapshot == nil || snapshot.Last {
		v.Cursor = event.Cursor
	}
}

// Timeline is the entries in their order.
func (v *RunView) Timeline() []*Entry {
	sorted := make([]*Entry, 0, len(v.Entries))
	for _, entry := range v.Entries {
		sorted = append(sorted, entry)
	}
	slices.SortFunc(sorted, func(a, b *Entry) int {
		if a.GetPosition() != b.GetPosition() {
			return int(max(-1, min(1, a.GetPosition()-b.GetPosition())))
		}
		return strings.Compare(a.GetPath(), b.GetPath())
	})
	return sorted
}

func (v *RunView) fold(event *Event) {
	switch of := event.Event.(type) {
	case *executorv1.WatchRunResponse_Batch:
		for _, each := range of.Batch.GetEvents() {
			v.Apply(each)
		}
	case *executorv1.WatchRunResponse_Snapshot:
		v.addPart(of.Snapshot)
	case *executorv1.WatchRunResponse_StreamStarted:
		v.Partial = &Partial{Turn: of.StreamStarted.GetTurn()}
	case *executorv1.WatchRunResponse_StreamDelta:
		if v.Partial != nil {
			for _, delta := range of.StreamDelta.GetDeltas() {
				v.Partial.add(delta)
			}
		}
	case *executorv1.WatchRunResponse_StreamCancelled:
		v.Partial = nil
	case *executorv1.WatchRunResponse_MessageAdded:
		v.keep(of.MessageAdded.GetEntry())
	case *executorv1.WatchRunResponse_MessageUpdated:
		v.keep(of.MessageUpdated.GetEntry())
	case *executorv1.WatchRunResponse_OutputAppended:
		v.append(of.OutputAppended)
	case *executorv1.WatchRunResponse_MessageRemoved:
		v.forget(of.MessageRemoved.GetPath())
	case *executorv1.WatchRunResponse_MessagesTruncated:
		for _, path := range of.MessagesTruncated.GetPaths() {
			v.forget(path)
		}
	case *executorv1.WatchRunResponse_ProposalPending:
		proposal := of.ProposalPending.GetProposal()
		put(&v.Proposals, proposal.GetPath(), proposal)
	case *executorv1.WatchRunResponse_ProposalResolved:
		delete(v.Proposals, of.ProposalResolved.GetDecision().GetPath())
	case *executorv1.WatchRunResponse_RunState:
		v.take(of.RunState.GetRun())
	case *executorv1.WatchRunResponse_ThreadUpdated:
		run := &Run{}
		if v.Run != nil {
			run = proto.Clone(v.Run).(*Run)
		}
		run.Settings = of.ThreadUpdated.GetSettings()
		v.Run = run
	case *executorv1.WatchRunResponse_QueueUpdated:
		v.Queue = of.QueueUpdated.GetCommands()
	case *executorv1.WatchRunResponse_DraftUpdated:
		v.Draft, v.DraftUsage = of.DraftUpdated.Text, of.DraftUpdated.Usage
	case *executorv1.WatchRunResponse_RuntimeUpdated:
		v.State, v.Compression = of.RuntimeUpdated.GetState(), of.RuntimeUpdated.GetCompression()
		if v.State != typesv1.SessionState_SESSION_STATE_PAUSED {
			v.PauseReasons = nil
		}
	case *executorv1.WatchRunResponse_PauseRequired:
		v.PauseReasons = of.PauseRequired.GetReasons()
	case *executorv1.WatchRunResponse_PlanUpdated:
		isSame := func(plan *typesv1.Plan) bool { return plan.GetPlanId() == of.PlanUpdated.GetPlanId() }
		if at := slices.IndexFunc(v.Plans, isSame); at >= 0 {
			v.Plans[at] = of.PlanUpdated
		} else {
			v.Plans = append(v.Plans, of.PlanUpdated)
		}
	case *executorv1.WatchRunResponse_PlanRemoved:
		v.Plans = slices.DeleteFunc(v.Plans, func(plan *typesv1.Plan) bool { return plan.GetPlanId() == of.PlanRemoved })
	case *executorv1.WatchRunResponse_LegacyPlan:
		v.LegacyPlan = of.LegacyPlan.GetItems()
	}
}

// take takes a run without its title, which events do not tell, and without its state, which they change by itself.
func (v *RunView) take(run *Run) {
	if run == nil {
		return
	}
	if run.State != typesv1.SessionState_SESSION_STATE_UNSPECIFIED {
		v.State = run.State
	}
	v.Run = proto.Clone(run).(*Run)
	v.Run.State, v.Run.Title = typesv1.SessionState_SESSION_STATE_UNSPECIFIED, ""
}

func (v *RunView) addPart(part *executorv1.Snapshot) {
	if part.GetPart() == 0 {
		v.parts = nil
	}
	v.parts = append(v.parts, part)
	if part.GetLast() {
		parts := v.parts
		v.parts = nil
		v.replace(parts, part)
	}
}

func (v *RunView) replace(parts []*executorv1.Snapshot, last *executorv1.Snapshot) {
	v.take(last.Run)
	v.State, v.Compression = last.State, last.Compression
	v.Draft, v.DraftUsage = last.Draft, last.DraftUsage
	v.Queue, v.PauseReasons = last.Queue, last.PauseReasons
	v.Entries, v.Proposals, v.Plans, v.Partial = map[string]*Entry{}, map[string]*Proposal{}, nil, nil
	v.LegacyPlan = last.GetLegacyPlan().GetItems()
	for _, part := range parts {
		for _, entry := range part.Entries {
			v.Entries[entry.GetPath()] = entry
		}
		v.Plans = append(v.Plans, part.Plans...)
	}
	for _, part := range parts {
		for _, piece := range part.Bodies {
			v.append(piece)
		}
	}
	for _, proposal := range last.Proposals {
		v.Proposals[proposal.GetPath()] = proposal
	}
	if last.Partial != nil {
		v.Partial = partialOf(parts, last.Partial)
	}
}

// keep keeps an entry. The text of a message that is streaming stays visible until the entry of the reply comes.
func (v *RunView) keep(entry *Entry) {
	put(&v.Entries, entry.GetPath(), entry)
	if v.Partial != nil && entry.GetPath() == replyPath(v.Partial.Turn) {
		v.Partial = nil
	}
}

func (v *RunView) forget(path string) {
	delete(v.Entries, path)
	delete(v.Proposals, path)
}

// append appends a piece to the body of its entry; unless that is a message, it stays truncated as in every event.
func (v *RunView) append(piece *executorv1.OutputAppended) {
	before := v.Entries[piece.GetPath()]
	if before == nil {
		return
	}
	after := proto.Clone(before).(*Entry)
	end := piece.GetOffset() + int64(len(piece.GetText()))
	if piece.GetText() != "" {
		if int64(len(before.Body)) == piece.GetOffset() {
			most := eventBodyMax
			if slices.Contains([]string{"prompt", "assistant", "reasoning", "draft"}, before.Scheme) {
				most = bodyMax
			}
			after.Body = cut(before.Body+piece.GetText(), most)
		}
		if end > before.BodySizeBytes {
			after.Hash = ""
		}
	}
	after.BodySizeBytes = max(end, before.BodySizeBytes)
	after.WriteCount, after.Revision = piece.GetWriteCount(), piece.GetRevision()
	v.Entries[piece.GetPath()] = after
}

// cut is the text up to so many bytes, without half a character at the end.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "")
}

func put[V any](into *map[string]V, key string, value V) {
	if *into == nil {
		*into = map[string]V{}
	}
	(*into)[key] = value
}

// RunList is the runs of a project, folded from the messages of [Client.WatchRuns]. The zero value knows nothing.
type RunList struct {
	// Runs are by alias.
	Runs map[string]*typesv1.RunOverview
	// IsComplete is whether a whole snapshot has come.
	IsComplete bool
}

// Apply folds a message in.
func (l *RunList) Apply(message *runsv1.WatchRunsResponse) {
	if snapshot := message.GetSnapshot(); snapshot != nil {
		if snapshot.Part == 0 {
			l.Runs = nil
		}
		l.take(snapshot.Runs)
		l.IsComplete = snapshot.Last
	}
	changed := message.GetChanged()
	for _, alias := range changed.GetDeleted() {
		delete(l.Runs, alias)
	}
	l.take(changed.GetCreated())
	l.take(changed.GetUpdated())
}

func (l *RunList) take(runs []*typesv1.RunOverview) {
	for _, run := range runs {
		put(&l.Runs, run.GetRun().GetRun(), run)
	}
}
