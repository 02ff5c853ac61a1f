/** What the page asks of a run. */
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import type { LoopSettingsSchema } from "@turnwright/client/protos/turnwright/types/v1/settings_pb.js";
import { type UserMessage, UserMessageSchema } from "@turnwright/client/protos/turnwright/types/v1/session_command_pb.js";

export function userMessage(text: string, settings?: MessageInitShape<typeof LoopSettingsSchema>): UserMessage {
  return create(UserMessageSchema, { parts: [{ part: { case: "text", value: text } }], ...(settings ? { settings } : {}) });
}
