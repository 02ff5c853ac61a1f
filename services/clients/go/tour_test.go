package turnwright_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	entriesv1 "github.com/turnwright/turnwright/gen/go/turnwright/entries/v1"
	executorv1 "github.com/turnwright/turnwright/gen/go/turnwright/executor/v1"
	projectsv1 "github.com/turnwright/turnwright/gen/go/turnwright/projects/v1"
	runsv1 "github.com/turnwright/turnwright/gen/go/turnwright/runs/v1"
	turnwright "github.com/turnwright/turnwright/services/clients/go"
)

// wire is the network as the tour finds it: connections that can be cut.
type wire struct {
	sync.Mutex
	open   []net.Conn
	cuts   int
	isLost bool // what comes next is lost, and the connection with it
}

type cuttable struct {
	net.Conn
	wire *wire
}

func (c cuttable) Read(into []byte) (int, error) {
	read, err := c.Conn.Read(into)
	c.wire.Lock()
	defer c.wire.Unlock()
	if !c.wire.isLost {
		return read, err
	}
	c.wire.isLost = false
	c.Close()
	return 0, io.ErrUnexpectedEOF
}

func (w *wire) dial(ctx context.Context, address string) (net.Conn, error) {
	network := "tcp"
	if path, isSocket := strings.CutPrefix(address, "unix://"); isSocket {
		network, address = "unix", path
	}
	opened, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err == nil {
		w.Lock()
		defer w.Unlock()
		w.open = append(w.open, opened)
	}
	return cuttable{opened, w}, err
}

func (w *wire) cut() {
	w.Lock()
	defer w.Unlock()
	for _, opened := range w.open {
		opened.Close()
	}
	w.open = nil
	w.cuts++
}

func need(t *testing.T, name string) string {
	value := os.Getenv(name)
	if value == "" {
		t.Skip("needs " + name + ": tests/polyglot/test_go_module.py starts what the tour goes to")
	}
	return value
}

func dial(t *testing.T, token string, network *wire) *turnwright.Client {
	t.Helper()
	client, err := turnwright.Dial(need(t, "TOUR_ADDRESS"), turnwright.WithToken(token), turnwright.WithTLSFromEnvironment(),
		turnwright.WithDialOptions(grpc.WithContextDialer(network.dial)))
	check(t, err)
	t.Cleanup(func() { client.Close() })
	return client
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestTour is the tour of docs/clients.md.
func TestTour(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	network := &wire{}
	client := dial(t, need(t, "TOKEN"), network)

	opened, err := client.Projects.InitProject(ctx, &projectsv1.InitProjectRequest{Root: need(t, "TOUR_ROOT")})
	check(t, err)
	project := opened.Project.Name

	// The runs of the project, followed on another connection that is cut with the first.
	follower, stop := context.WithCancel(ctx)
	defer stop()
	listed := make(chan string)
	go followRuns(follower, dial(t, need(t, "TOKEN"), network), project, listed)

	// A task, given twice under one id as after a lost answer: it is queued once.
	asked := &turnwright.Task{
		Project: project, Prompt: "Say hello.", RequestId: "tour", Settings: &turnwright.LoopSettings{Model: "m"},
	}
	task, err := client.Act(ctx, asked)
	check(t, err)
	again, err := client.Act(ctx, asked)
	check(t, err)
	run := task.Run.Run
	if again.Run.Run != run || again.Loop.Sequence != task.Loop.Sequence {
		t.Fatalf("%v and %v are two tasks", task, again)
	}

	// To its end, cut at every third event and before the decision.
	var said strings.Builder
	view, last, events, decided := &turnwright.RunView{}, &turnwright.EventCursor{}, 0, 0
	loop, err := client.RunToEnd(ctx, task, turnwright.OnEvent(func(_ context.Context, event *turnwright.Event) error {
		view.Apply(event)
		if event.GetHeartbeat() != nil {
			return nil
		}
		if at := event.Cursor; last.Epoch == at.Epoch && event.GetSnapshot() == nil && at.Seq != last.Seq+1 {
			return fmt.Errorf("event %d came after %d", at.Seq, last.Seq)
		}
		if last = event.Cursor; events%3 == 0 {
			network.cut()
		}
		events++
		return nil
	}), turnwright.OnReply(func(_ context.Context, text string) error {
		said.WriteString(text)
		return nil
	}), turnwright.OnProposal(func(_ context.Context, proposal *turnwright.Proposal) (turnwright.Decision, error) {
		decided++
		network.cut()
		return turnwright.Accept(), nil
	}))
	check(t, err)
	if loop.Status != 200 || loop.Summary != "Written." || loop.Usage.GetTotalTokens() == 0 || decided != 1 || events < 20 || network.cuts < 7 {
		t.Fatalf("%v after %d decisions, %d events, %d cuts", loop, decided, events, network.cuts)
	}
	for _, prose := range strings.Split(need(t, "TOUR_PROSE"), "|") {
		if strings.Count(said.String(), prose) != 1 {
			t.Errorf("%q is not once in %q", prose, &said)
		}
	}

	// The fold of what came is what a snapshot has.
	fresh := &turnwright.RunView{}
	for event, err := range client.Watch(ctx, &turnwright.WatchRunRequest{Project: project, Run: run}) {
		check(t, err)
		if fresh.Apply(event); fresh.Cursor != nil {
			break
		}
	}
	for event, err := range client.Watch(ctx, &turnwright.WatchRunRequest{Project: project, Run: run, After: view.Cursor}) {
		if proto.Equal(view.Cursor, fresh.Cursor) {
			break
		}
		check(t, err)
		view.Apply(event)
	}
	same(t, view, fresh)

	// A list page by page.
	paths := []string{}
	request := &entriesv1.ListEntriesRequest{Project: project, Run: run, WithoutBodies: true, PageSize: 1}
	for page, err := range turnwright.Pages(ctx, client.Entries.ListEntries, request) {
		check(t, err)
		for _, entry := range page.Entries {
			paths = append(paths, entry.Path)
		}
	}
	if len(paths) < 4 || !strings.Contains(strings.Join(paths, " "), "hello.txt") || request.PageToken != "" {
		t.Errorf("the list is %v", paths)
	}

	errorsHaveNames(ctx, t, client, project, run)

	// The answer of a call that changes something is lost: it is repeated, and has happened once.
	faulty := &wire{}
	forking := dial(t, need(t, "TOKEN"), faulty)
	_, err = forking.Executor.Discover(ctx, &executorv1.DiscoverRequest{})
	check(t, err)
	faulty.Lock()
	faulty.isLost = true
	faulty.Unlock()
	forked, err := forking.Runs.ForkRun(ctx, &runsv1.ForkRunRequest{Project: project, Run: run})
	check(t, err)
	forks := 0
	for page, err := range turnwright.Pages(ctx, client.Runs.ListRuns, &runsv1.ListRunsRequest{Project: project}) {
		check(t, err)
		for _, other := range page.Runs {
			if other.Run != run {
				forks++
			}
		}
	}
	if faulty.isLost || forks != 1 {
		t.Errorf("a lost answer (%v) made %d forks", !faulty.isLost, forks)
	}
	network.cut()
	// In any order: both may come with the first message after the cut.
	for isDone, isThere := false, false; !isDone || !isThere; {
		found, isOpen := <-listed
		if !isOpen {
			t.Fatalf("the list ended without %s (%v) and its fork (%v)", run, isDone, isThere)
		}
		isDone = isDone || found == run+" 200"
		isThere = isThere || strings.HasPrefix(found, forked.Run.Run+" ")
	}
}

// followRuns tells how the runs of a project stand, each time that something about them has changed.
func followRuns(ctx context.Context, client *turnwright.Client, project string, listed chan<- string) {
	defer close(listed)
	list := turnwright.RunList{}
	told := map[string]bool{}
	for message, err := range client.WatchRuns(ctx, &runsv1.WatchRunsRequest{Project: project}) {
		if err != nil {
			return
		}
		list.Apply(message)
		for alias, run := range list.Runs {
			line := fmt.Sprint(alias, " ", run.Run.Status)
			if told[line] {
				continue
			}
			told[line] = true
			select {
			case listed <- line:
			case <-ctx.Done():
				return
			}
		}
	}
}

func errorsHaveNames(ctx context.Context, t *testing.T, client *turnwright.Client, project, run string) {
	t.Helper()
	_, err := client.Entries.GetEntry(ctx, &entriesv1.GetEntryRequest{Project: project, Run: run, Path: "known://conclusion"})
	var failed *turnwright.Error
	if !errors.Is(err, turnwright.EntryNotFound) || errors.Is(err, turnwright.RunNotFound) || !errors.As(err, &failed) ||
		failed.Metadata["path"] != "known://conclusion" || !strings.HasPrefix(err.Error(), "ENTRY_NOT_FOUND: ") {
		t.Errorf("no entry: %v", err)
	}
	for _, err := range client.Watch(ctx, &turnwright.WatchRunRequest{Project: project, Run: "nowhere"}) {
		if !errors.Is(err, turnwright.RunNotFound) {
			t.Errorf("no run: %v", err)
		}
	}
	_, err = dial(t, "no token", &wire{}).Executor.Discover(ctx, &executorv1.DiscoverRequest{})
	if !errors.Is(err, turnwright.Unauthenticated) {
		t.Errorf("no token: %v", err)
	}
	soon, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	for _, err = range client.Watch(soon, &turnwright.WatchRunRequest{Project: project, Run: run}) {
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a watch ended with %v", err)
	}
}

// TestEachServiceHasAClient compares the fields of the client with what an executor says that it serves.
func TestEachServiceHasAClient(t *testing.T) {
	client := dial(t, need(t, "TOKEN"), &wire{})
	found, err := client.Executor.Discover(context.Background(), &executorv1.DiscoverRequest{})
	check(t, err)
	clients := map[string]bool{}
	for _, field := range reflect.VisibleFields(reflect.TypeOf(*client)) {
		clients[strings.TrimSuffix(field.Type.Name(), "Client")] = true
	}
	for _, method := range found.Methods {
		service, _, _ := strings.Cut(method.Name, "/")
		if service = service[strings.LastIndex(service, ".")+1:]; !clients[service] {
			t.Errorf("the client has no %s", service)
		}
	}
	if len(found.Methods) < 50 {
		t.Errorf("only %d methods", len(found.Methods))
	}
}
