package turnwright

import (
	"encoding/json"
	"fmt"
	"slices"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	executorv1 "github.com/turnwright/turnwright/gen/go/turnwright/executor/v1"
	typesv1 "github.com/turnwright/turnwright/gen/go/turnwright/types/v1"
)

// Partial is a reply that is being streamed, as far as it has come.
type Partial struct {
	// Turn is the number of its turn.
	Turn uint32

	// Texts and arguments are in bytes, which grow in place.
	content, reasoning []byte
	calls              []growingCall
	usage              *typesv1.Usage
	rest               typesv1.Message
	extra              map[string]json.RawMessage
}

type growingCall struct {
	call      *typesv1.ToolCall
	arguments []byte
}

// Content is the prose so far; in a watch with Replies REPLY_FORM_RAW all that the model wrote.
func (p *Partial) Content() string { return string(p.content) }

// Reasoning is the reasoning so far.
func (p *Partial) Reasoning() string { return string(p.reasoning) }

// Usage is that of the model call so far; nil: the vendor has not told.
func (p *Partial) Usage() *typesv1.Usage { return p.usage }

// Message is the reply so far as a message, with its calls and everything else.
func (p *Partial) Message() *typesv1.Message {
	message := proto.Clone(&p.rest).(*typesv1.Message)
	message.Role = typesv1.Role_ROLE_ASSISTANT
	message.Reasoning = string(p.reasoning)
	if len(p.content) > 0 {
		message.Parts = []*typesv1.Part{{Part: &typesv1.Part_Text{Text: string(p.content)}}}
	}
	for _, growing := range p.calls {
		call := proto.Clone(growing.call).(*typesv1.ToolCall)
		call.Arguments = string(growing.arguments)
		message.Calls = append(message.Calls, call)
	}
	if len(p.extra) > 0 {
		if text, err := json.Marshal(p.extra); err == nil {
			message.Extra = string(text)
		}
	}
	return message
}

// replyPath is the path of the entry of a turn's reply.
func replyPath(turn uint32) string { return fmt.Sprintf("assistant://%d", turn) }

func (p *Partial) turn() uint32 {
	if p == nil {
		return 0
	}
	return p.Turn
}

// partialOf is the reply that a snapshot has, its texts spread over the parts.
func partialOf(parts []*executorv1.Snapshot, last *executorv1.PartialMessage) *Partial {
	made := &Partial{Turn: last.Turn, usage: last.Usage}
	for _, part := range parts {
		made.content = append(made.content, part.GetPartial().GetContent()...)
		made.reasoning = append(made.reasoning, part.GetPartial().GetReasoning()...)
	}
	if message := last.Message; message != nil {
		made.setCalls(message.Calls)
		made.mergeExtra(message.Extra)
		made.rest.Thinking = slices.Clone(message.Thinking)
		made.rest.ServerBlocks = slices.Clone(message.ServerBlocks)
		made.rest.Citations = slices.Clone(message.Citations)
	}
	return made
}

func (p *Partial) add(delta *typesv1.Delta) {
	switch change := delta.GetChange().(type) {
	case *typesv1.Delta_AppendContent:
		p.content = append(p.content, change.AppendContent...)
	case *typesv1.Delta_AppendReasoning:
		p.reasoning = append(p.reasoning, change.AppendReasoning...)
	case *typesv1.Delta_SetToolCalls:
		p.setCalls(change.SetToolCalls.GetCalls())
	case *typesv1.Delta_SetUsage:
		p.usage = larger(p.usage, change.SetUsage)
	case *typesv1.Delta_SetThinkingBlocks:
		for _, block := range change.SetThinkingBlocks.GetBlocks() {
			p.setThinking(block)
		}
	case *typesv1.Delta_AddCitation:
		if says(change.AddCitation) {
			p.rest.Citations = append(p.rest.Citations, change.AddCitation)
		}
	case *typesv1.Delta_AddServerContentBlock:
		if says(change.AddServerContentBlock.GetJson()) {
			p.rest.ServerBlocks = append(p.rest.ServerBlocks, change.AddServerContentBlock)
		}
	case *typesv1.Delta_MergeExtra:
		p.mergeExtra(change.MergeExtra)
	case *typesv1.Delta_BeginCall:
		begun := &typesv1.ToolCall{Index: uint32(len(p.calls)), Name: change.BeginCall.GetName()}
		p.calls = append(p.calls, growingCall{call: begun})
	case *typesv1.Delta_GrowCall:
		if at := int(change.GrowCall.GetIndex()); at < len(p.calls) {
			p.calls[at].arguments = append(p.calls[at].arguments, change.GrowCall.GetArguments()...)
		}
	case *typesv1.Delta_TakeBack:
		for range change.TakeBack.GetChars() {
			_, size := utf8.DecodeLastRune(p.content)
			if size == 0 {
				break
			}
			p.content = p.content[:len(p.content)-size]
		}
		p.calls = p.calls[:min(len(p.calls), int(change.TakeBack.GetCalls()))]
	}
}

func (p *Partial) setCalls(calls []*typesv1.ToolCall) {
	p.calls = make([]growingCall, 0, len(calls))
	for _, call := range calls {
		p.calls = append(p.calls, growingCall{call, []byte(call.GetArguments())})
	}
}

// setThinking lets a block replace its counterpart, or appends it. Fields that the block leaves empty stay as they were.
func (p *Partial) setThinking(block *typesv1.ThinkingBlock) {
	at := slices.IndexFunc(p.rest.Thinking, func(held *typesv1.ThinkingBlock) bool { return isSameBlock(held, block) })
	if at < 0 {
		p.rest.Thinking = append(p.rest.Thinking, block)
		return
	}
	updated := proto.Clone(p.rest.Thinking[at]).(*typesv1.ThinkingBlock)
	proto.Merge(updated, block)
	p.rest.Thinking[at] = updated
}

func isSameBlock(held, block *typesv1.ThinkingBlock) bool {
	switch {
	case held.GetType() != block.GetType():
		return false
	case block.Index != nil:
		return held.Index != nil && *held.Index == *block.Index
	case block.GetId() != "":
		return held.GetId() == block.GetId()
	}
	return block.GetSignature() != "" && held.GetSignature() == block.GetSignature()
}

// mergeExtra takes the keys of a JSON object that are not names of fields of a message.
func (p *Partial) mergeExtra(text string) {
	var sent map[string]json.RawMessage
	if text == "" || json.Unmarshal([]byte(text), &sent) != nil {
		return
	}
	fields := (&typesv1.Message{}).ProtoReflect().Descriptor().Fields()
	for key, value := range sent {
		isField := slices.Contains([]string{"content", "reasoning_content", "tool_calls", "usage"}, key)
		for at := 0; at < fields.Len() && !isField; at++ {
			isField = string(fields.Get(at).Name()) == key
		}
		if !isField {
			put(&p.extra, key, value)
		}
	}
}

// says is whether a JSON text adds something.
func says(text string) bool { return text != "" && text != "null" }

// larger has the maximum of each field; of a cost that only one of them knows, that one.
func larger(one, other *typesv1.Usage) *typesv1.Usage {
	if one == nil || other == nil {
		return other
	}
	most := &typesv1.Usage{
		PromptTokens:     max(one.PromptTokens, other.PromptTokens),
		CachedTokens:     max(one.CachedTokens, other.CachedTokens),
		CompletionTokens: max(one.CompletionTokens, other.CompletionTokens),
		ReasoningTokens:  max(one.ReasoningTokens, other.ReasoningTokens),
		TotalTokens:      max(one.TotalTokens, other.TotalTokens),
		CacheWriteTokens: max(one.CacheWriteTokens, other.CacheWriteTokens),
		CostUsd:          one.CostUsd,
	}
	if most.CostUsd == nil || other.CostUsd != nil && *other.CostUsd > *most.CostUsd {
		most.CostUsd = other.CostUsd
	}
	return most
}
