package turnwright_test

import (
	"maps"
	"os"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	executorv1 "github.com/turnwright/turnwright/gen/go/turnwright/executor/v1"
	turnwright "github.com/turnwright/turnwright/services/clients/go"
)

// TestFold folds the events of a file and writes the state after each, as a snapshot of one part. The test that runs it compares them
// with what the executor's own fold says.
func TestFold(t *testing.T) {
	given, err := os.ReadFile(need(t, "TOUR_EVENTS"))
	check(t, err)
	events, states := &executorv1.EventBatch{}, &executorv1.EventBatch{}
	check(t, proto.Unmarshal(given, events))
	view := &turnwright.RunView{}
	for _, event := range events.Events {
		view.Apply(event)
		states.Events = append(states.Events, &turnwright.Event{
			Cursor: view.Cursor, Event: &executorv1.WatchRunResponse_Snapshot{Snapshot: proto.Clone(stateOf(view)).(*executorv1.Snapshot)},
		})
	}
	written, err := proto.Marshal(states)
	check(t, err)
	check(t, os.WriteFile(need(t, "TOUR_STATES"), written, 0o600))
}

func stateOf(view *turnwright.RunView) *executorv1.Snapshot {
	state := &executorv1.Snapshot{
		Run: view.Run, State: view.State, Entries: view.Timeline(), Plans: view.Plans, Queue: view.Queue, Draft: view.Draft,
		DraftUsage: view.DraftUsage, PauseReasons: view.PauseReasons, Compression: view.Compression,
	}
	for _, path := range slices.Sorted(maps.Keys(view.Proposals)) {
		state.Proposals = append(state.Proposals, view.Proposals[path])
	}
	if view.LegacyPlan != nil {
		state.LegacyPlan = &executorv1.LegacyPlan{Items: view.LegacyPlan}
	}
	if partial := view.Partial; partial != nil {
		state.Partial = &executorv1.PartialMessage{
			Turn: partial.Turn, Content: partial.Content(), Reasoning: partial.Reasoning(),
			Message: partial.Message(), Usage: partial.Usage(),
		}
	}
	return state
}

func same(t *testing.T, one, other *turnwright.RunView) {
	t.Helper()
	if mine, theirs := stateOf(one), stateOf(other); !proto.Equal(mine, theirs) {
		t.Errorf("%s\nand\n%s", prototext.Format(mine), prototext.Format(theirs))
	}
}
