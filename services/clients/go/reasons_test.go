package turnwright

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	executorv1 "github.com/turnwright/turnwright/gen/go/turnwright/executor/v1"
	runsv1 "github.com/turnwright/turnwright/gen/go/turnwright/runs/v1"
	typesv1 "github.com/turnwright/turnwright/gen/go/turnwright/types/v1"
)

func TestTheReasonsAreThoseOfTheContract(t *testing.T) {
	text, err := os.ReadFile("reasons.go")
	if err != nil {
		t.Fatal(err)
	}
	written := strings.Count(string(text), " Reason = ")
	if of := len(typesv1.ErrorReason_name) - 1; written != of {
		t.Errorf("reasons.go has %d reasons, the contract %d", written, of)
	}
	for number, name := range typesv1.ErrorReason_name {
		reason := strings.TrimPrefix(name, "ERROR_REASON_")
		if number != 0 && !strings.Contains(string(text), ` Reason = "`+reason+`"`) {
			t.Errorf("reasons.go lacks %s", reason)
		}
	}
}

func TestPlaintextIsForThisHostOnly(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:7440": true, "localhost:7440": true, "[::1]:7440": true, "unix:/run/executor": true, "dns:///localhost:7440": true,
		"executor:7440": false, "10.0.0.1:7440": false, "dns:///executor:7440": false, "localhost.example:7440": false, "localhost": false,
	} {
		client, err := Dial(address)
		if (err == nil) != want {
			t.Errorf("%s: %v", address, err)
		}
		if err == nil {
			client.Close()
		}
	}
}

func TestAnExecutorThatIsNotThereIsNamedWithWhatToDo(t *testing.T) {
	address := "unix:" + t.TempDir() + "/nobody"
	client, err := Dial(address)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	_, called := client.Runs.GetRun(context.Background(), &runsv1.GetRunRequest{})
	stream, err := client.Executor.WatchRun(context.Background(), &executorv1.WatchRunRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	for _, err := range []error{called, err} {
		var failed *Error
		if !errors.As(err, &failed) || !errors.Is(err, ServiceUnavailable) || failed.Metadata["address"] != address {
			t.Fatalf("%#v", err)
		}
		if text := err.Error(); !strings.HasPrefix(text, "SERVICE_UNAVAILABLE: The executor at "+address+" does not answer: ") ||
			!strings.HasSuffix(text, "no such file or directory. Is it running there, for instance by `turnwright serve`?") {
			t.Error(text)
		}
	}
}
