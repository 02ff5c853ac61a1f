// A provider and an assembler written from the contract alone: `services NAME ADDRESS`, with what the model would say as further
// arguments, one for each turn. Each request is printed to standard output as a line of JSON.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	assemblerpb "github.com/turnwright/turnwright/gen/go/turnwright/assembler/v1"
	providerpb "github.com/turnwright/turnwright/gen/go/turnwright/provider/v1"
	types "github.com/turnwright/turnwright/gen/go/turnwright/types/v1"
)

const contextLength = 8192

var printing sync.Mutex

// note prints a request under its method's name.
func note(method string, request proto.Message) {
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(request)
	if err != nil {
		log.Fatal(err)
	}
	printing.Lock()
	defer printing.Unlock()
	fmt.Printf("{\"method\":%q,\"request\":%s}\n", method, text)
}

// checked refuses calls without the token of a service.
func checked(ctx context.Context) error {
	if given, _ := metadata.FromIncomingContext(ctx); len(given.Get("authorization")) != 1 {
		return status.Error(codes.Unauthenticated, "No token was given.")
	}
	return nil
}

type provider struct {
	providerpb.UnimplementedProviderServiceServer
	replies []string
}

func (p *provider) Generate(request *providerpb.GenerateRequest, stream providerpb.ProviderService_GenerateServer) error {
	if err := checked(stream.Context()); err != nil {
		return err
	}
	note("Generate", request)
	if int(request.CallIndex) >= len(p.replies) {
		return status.Errorf(codes.FailedPrecondition, "There is no reply %d.", request.CallIndex)
	}
	reply := p.replies[request.CallIndex]
	for len(reply) > 0 {
		size := 16
		for size < len(reply) && !utf8.RuneStart(reply[size]) {
			size++
		}
		if size > len(reply) {
			size = len(reply)
		}
		delta := &types.Delta{Change: &types.Delta_AppendContent{AppendContent: reply[:size]}}
		if err := stream.Send(&providerpb.GenerateResponse{Part: &providerpb.GenerateResponse_Delta{Delta: delta}}); err != nil {
			return err
		}
		reply = reply[size:]
	}
	finish := &providerpb.Finish{
		Reason: "stop", VendorModel: "fixed-1", Usage: &types.Usage{PromptTokens: 1234, CompletionTokens: 56},
	}
	return stream.Send(&providerpb.GenerateResponse{Part: &providerpb.GenerateResponse_Finish{Finish: finish}})
}

func (p *provider) CountTokens(_ context.Context, request *providerpb.CountTokensRequest) (*providerpb.CountTokensResponse, error) {
	note("CountTokens", request)
	return &providerpb.CountTokensResponse{Tokens: 1234, Source: types.TokenSource_TOKEN_SOURCE_TOKENIZER}, nil
}

func (p *provider) ListVendors(context.Context, *providerpb.ListVendorsRequest) (*providerpb.ListVendorsResponse, error) {
	vendor := &types.Vendor{Name: "fixed", Configured: true, Endpoint: "none"}
	return &providerpb.ListVendorsResponse{Vendors: []*types.Vendor{vendor}}, nil
}

func (p *provider) CheckModels(_ context.Context, request *providerpb.CheckModelsRequest) (*providerpb.CheckModelsResponse, error) {
	note("CheckModels", request)
	answer := &providerpb.CheckModelsResponse{}
	for _, model := range request.Models {
		model.ContextLength = contextLength
		answer.Checks = append(answer.Checks, &types.ModelCheck{Model: model, Usable: true})
	}
	return answer, nil
}

type assembler struct {
	assemblerpb.UnimplementedAssemblerServiceServer
}

// Assemble answers the same two messages for every turn but for its number, in several parts and pieces.
func (a *assembler) Assemble(request *assemblerpb.AssembleRequest, stream assemblerpb.AssemblerService_AssembleServer) error {
	if err := checked(stream.Context()); err != nil {
		return err
	}
	note("Assemble", request)
	messages := []struct {
		role   types.PacketRole
		pieces []string
	}{
		{types.PacketRole_PACKET_ROLE_SYSTEM, []string{"Write files with <set>. ", "End with <update>."}},
		{types.PacketRole_PACKET_ROLE_USER, []string{"Grüße für alle. ", fmt.Sprintf("This is turn %d.", request.Turn)}},
	}
	report := &assemblerpb.PacketReport{
		Tokens: 20, Ceiling: contextLength, Cursor: request.AtLeast, RenderVersion: "fixed-1",
	}
	if report.Cursor == nil {
		report.Cursor = &types.Cursor{}
	}
	packet := sha256.New()
	for index, message := range messages {
		whole := sha256.New()
		part := &types.PacketMessage{Role: message.role}
		for _, text := range message.pieces {
			digest := sha256.Sum256([]byte(text))
			whole.Write(digest[:])
			report.Chars += uint64(utf8.RuneCountInString(text))
			part.Pieces = append(part.Pieces, &types.PacketPiece{Piece: &types.PacketPiece_Text{Text: text}})
		}
		word := strings.ToLower(strings.TrimPrefix(message.role.String(), "PACKET_ROLE_"))
		fmt.Fprintf(packet, "%s %s\n", word, hex.EncodeToString(whole.Sum(nil)))
		answer := &assemblerpb.AssembleResponse{Messages: []*types.PacketMessage{part}}
		if index == len(messages)-1 {
			report.Digest = hex.EncodeToString(packet.Sum(nil))
			answer.Report = report
		}
		if err := stream.Send(answer); err != nil {
			return err
		}
	}
	return nil
}

func (a *assembler) CheckBudget(_ context.Context, request *assemblerpb.CheckBudgetRequest) (*assemblerpb.CheckBudgetResponse, error) {
	note("CheckBudget", request)
	return &assemblerpb.CheckBudgetResponse{Tokens: 20, Ceiling: contextLength}, nil
}

func main() {
	server := grpc.NewServer()
	switch os.Args[1] {
	case "provider":
		providerpb.RegisterProviderServiceServer(server, &provider{replies: os.Args[3:]})
	case "assembler":
		assemblerpb.RegisterAssemblerServiceServer(server, &assembler{})
	default:
		log.Fatal("usage: services provider|assembler ADDRESS [REPLY ...]")
	}
	healthpb.RegisterHealthServer(server, health.NewServer())
	listener, err := net.Listen("unix", strings.TrimPrefix(os.Args[2], "unix:"))
	if err != nil {
		log.Fatal(err)
	}
	stopped := make(chan os.Signal, 1)
	signal.Notify(stopped, syscall.SIGTERM)
	go func() {
		<-stopped
		server.Stop() // Also removes the socket.
	}()
	if err := server.Serve(listener); err != nil {
		log.Fatal(err)
	}
}
