package turnwright

import (
	"context"
	"iter"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// pageRequest and pageAnswer are what the requests and answers of all lists have in common.
type (
	pageRequest interface {
		proto.Message
		GetPageToken() string
	}
	pageAnswer interface {
		proto.Message
		GetNextPageToken() string
	}
)

// Pages iterates over the pages of a list:
//
//	for page, err := range turnwright.Pages(ctx, client.Entries.ListEntries, &entriesv1.ListEntriesRequest{...}) {
//
// A page may be empty and not the last. An error comes without a page and ends it.
func Pages[Q pageRequest, A pageAnswer](ctx context.Context, list func(context.Context, Q, ...grpc.CallOption) (A, error), request Q) iter.Seq2[A, error] {
	return func(yield func(A, error) bool) {
		asked := proto.Clone(request).(Q)
		token := asked.ProtoReflect().Descriptor().Fields().ByName("page_token")
		for {
			page, err := list(ctx, asked)
			if err != nil {
				var none A
				yield(none, err)
				return
			}
			if !yield(page, nil) || page.GetNextPageToken() == "" {
				return
			}
			asked.ProtoReflect().Set(token, protoreflect.ValueOfString(page.GetNextPageToken()))
		}
	}
}
