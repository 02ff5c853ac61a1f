// Package turnwright is the client library of Turnwright, an agent runtime: it gives runs their tasks, follows them, decides what
// they propose, and reads what they have done.
//
//	client, err := turnwright.Dial("127.0.0.1:7440", turnwright.WithToken(os.Getenv("TOKEN")))
//	...
//	defer client.Close()
//	task, err := client.Act(ctx, &turnwright.Task{Project: "thing", Prompt: "Fix the tests."})
//	...
//	loop, err := client.RunToEnd(ctx, task, turnwright.OnProposal(decide))
//
// # Calls
//
// A [Client] has the generated client of each service, such as client.Runs.ForkRun, so every call of the contract can be made. All of
// them go by the same rules: a call without a deadline gets one (30 seconds, see [WithTimeout]); one with a request id that is left
// empty gets a random id; one that fails because the connection was lost is repeated if that is safe; and a failure is an [*Error].
// [Pages] iterates over the pages of a list.
//
// # Watches
//
// [Client.Watch] iterates over the events of a run, [Client.WatchRuns] over the changes of the runs of a project, and
// [Client.WatchProposals] over those of the inbox. They connect again after a failure and go on where they were, without a hole and
// without an event twice. They end when the loop over them does, when ctx ends, or with an error that another attempt would meet again.
// [RunView] and [RunList] fold what they tell into a state.
//
// # Errors
//
// A [Reason] is an error to compare with:
//
//	if errors.Is(err, turnwright.EntryNotFound) { ... }
//
// and errors.As with an [*Error] has the values that belong to it. Texts are for people and may change.
package turnwright
