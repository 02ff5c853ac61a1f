package turnwright

import (
	"context"
	"time"

	"google.golang.org/grpc"

	auditsv1 "github.com/turnwright/turnwright/gen/go/turnwright/audits/v1"
	cataloguesv1 "github.com/turnwright/turnwright/gen/go/turnwright/catalogues/v1"
	documentsv1 "github.com/turnwright/turnwright/gen/go/turnwright/documents/v1"
	entriesv1 "github.com/turnwright/turnwright/gen/go/turnwright/entries/v1"
	executorv1 "github.com/turnwright/turnwright/gen/go/turnwright/executor/v1"
	grantsv1 "github.com/turnwright/turnwright/gen/go/turnwright/grants/v1"
	modelsv1 "github.com/turnwright/turnwright/gen/go/turnwright/models/v1"
	plansv1 "github.com/turnwright/turnwright/gen/go/turnwright/plans/v1"
	projectsv1 "github.com/turnwright/turnwright/gen/go/turnwright/projects/v1"
	proposalsv1 "github.com/turnwright/turnwright/gen/go/turnwright/proposals/v1"
	quotasv1 "github.com/turnwright/turnwright/gen/go/turnwright/quotas/v1"
	rulesv1 "github.com/turnwright/turnwright/gen/go/turnwright/rules/v1"
	runsv1 "github.com/turnwright/turnwright/gen/go/turnwright/runs/v1"
	schedulesv1 "github.com/turnwright/turnwright/gen/go/turnwright/schedules/v1"
	sessionsv1 "github.com/turnwright/turnwright/gen/go/turnwright/sessions/v1"
	streamsv1 "github.com/turnwright/turnwright/gen/go/turnwright/streams/v1"
	tokensv1 "github.com/turnwright/turnwright/gen/go/turnwright/tokens/v1"
	turnsv1 "github.com/turnwright/turnwright/gen/go/turnwright/turns/v1"
	typesv1 "github.com/turnwright/turnwright/gen/go/turnwright/types/v1"
	webhooksv1 "github.com/turnwright/turnwright/gen/go/turnwright/webhooks/v1"
)

// The messages of the contract that programs name most often. All others are in the packages below
// github.com/turnwright/turnwright/gen/go/turnwright, which come with this module.
type (
	// Entry is an entry of a run: a prompt, a reply, the record of a command, a file, a note.
	Entry = typesv1.Entry
	// Event is an event of a run.
	Event = executorv1.WatchRunResponse
	// EventCursor is the position of an event.
	EventCursor = typesv1.EventCursor
	// Loop is the work on one task.
	Loop = typesv1.Loop
	// LoopSettings are the settings of a task.
	LoopSettings = typesv1.LoopSettings
	// Proposal is what a run wants to do and waits for a decision about.
	Proposal = typesv1.Proposal
	// Run is a run with its settings and its active or latest loop.
	Run = typesv1.Run
	// Task is a task for a run.
	Task = executorv1.Task
	// WatchRunRequest says which events to watch.
	WatchRunRequest = executorv1.WatchRunRequest
)

// Client calls an executor. It may be used by several goroutines.
//
// The fields are the generated clients of the services; what a call means is said at it in the protos.
type Client struct {
	// Executor has tasks, watches and tools.
	Executor executorv1.ExecutorServiceClient
	// The resources.
	Audits     auditsv1.AuditServiceClient
	Catalogues cataloguesv1.CatalogueServiceClient
	Documents  documentsv1.DocumentServiceClient
	Entries    entriesv1.EntryServiceClient
	Grants     grantsv1.GrantServiceClient
	Models     modelsv1.ModelServiceClient
	Plans      plansv1.PlanServiceClient
	Projects   projectsv1.ProjectServiceClient
	Proposals  proposalsv1.ProposalServiceClient
	Quotas     quotasv1.QuotaServiceClient
	Rules      rulesv1.RuleServiceClient
	Runs       runsv1.RunServiceClient
	Schedules  schedulesv1.ScheduleServiceClient
	Sessions   sessionsv1.SessionServiceClient
	Streams    streamsv1.StreamServiceClient
	Tokens     tokensv1.TokenServiceClient
	Turns      turnsv1.TurnServiceClient
	Webhooks   webhooksv1.WebhookServiceClient

	connection *grpc.ClientConn
	timeout    time.Duration
}

func (c *Client) open(connection *grpc.ClientConn) {
	c.connection = connection
	c.Executor = executorv1.NewExecutorServiceClient(connection)
	c.Audits = auditsv1.NewAuditServiceClient(connection)
	c.Catalogues = cataloguesv1.NewCatalogueServiceClient(connection)
	c.Documents = documentsv1.NewDocumentServiceClient(connection)
	c.Entries = entriesv1.NewEntryServiceClient(connection)
	c.Grants = grantsv1.NewGrantServiceClient(connection)
	c.Models = modelsv1.NewModelServiceClient(connection)
	c.Plans = plansv1.NewPlanServiceClient(connection)
	c.Projects = projectsv1.NewProjectServiceClient(connection)
	c.Proposals = proposalsv1.NewProposalServiceClient(connection)
	c.Quotas = quotasv1.NewQuotaServiceClient(connection)
	c.Rules = rulesv1.NewRuleServiceClient(connection)
	c.Runs = runsv1.NewRunServiceClient(connection)
	c.Schedules = schedulesv1.NewScheduleServiceClient(connection)
	c.Sessions = sessionsv1.NewSessionServiceClient(connection)
	c.Streams = streamsv1.NewStreamServiceClient(connection)
	c.Tokens = tokensv1.NewTokenServiceClient(connection)
	c.Turns = turnsv1.NewTurnServiceClient(connection)
	c.Webhooks = webhooksv1.NewWebhookServiceClient(connection)
}

// Close ends the connection and all calls. Runs go on.
func (c *Client) Close() error { return c.connection.Close() }

// Connection is that of all calls, for services that this package does not know, such as those of health and reflection.
func (c *Client) Connection() grpc.ClientConnInterface { return c.connection }

// QueuedTask is a task in the queue of a run.
type QueuedTask struct {
	// Project is the name of the project.
	Project string
	// Run is the run as it was when the task was queued.
	Run *Run
	// Loop is the work on the task, which has not begun.
	Loop *Loop
	// Cursor is where to watch from, to see everything that the task causes; nil: a watch begins with a snapshot.
	Cursor *EventCursor
}

// Act queues a task that may change things. A run that task names is continued; without one there is a new run.
func (c *Client) Act(ctx context.Context, task *Task) (*QueuedTask, error) {
	answer, err := c.Executor.Act(ctx, &executorv1.ActRequest{Task: task})
	return queued(task, answer.GetQueued(), err)
}

// Ask queues a task that only reads.
func (c *Client) Ask(ctx context.Context, task *Task) (*QueuedTask, error) {
	answer, err := c.Executor.Ask(ctx, &executorv1.AskRequest{Task: task})
	return queued(task, answer.GetQueued(), err)
}

func queued(task *Task, answer *executorv1.QueuedTask, err error) (*QueuedTask, error) {
	if err != nil {
		return nil, err
	}
	return &QueuedTask{Project: task.GetProject(), Run: answer.GetRun(), Loop: answer.GetLoop(), Cursor: answer.GetCursor()}, nil
}
