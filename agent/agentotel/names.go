package agentotel

// The names of the GenAI semantic conventions, release 1.41.
const (
	opAgent = "invoke_agent"
	opChat  = "chat"
	opTool  = "execute_tool"

	keyOperation     = "gen_ai.operation.name"
	keyProvider      = "gen_ai.provider.name"
	keyAgent         = "gen_ai.agent.name"
	keyConversation  = "gen_ai.conversation.id"
	keyModel         = "gen_ai.request.model"
	keyResponseModel = "gen_ai.response.model"
	keyResponseID    = "gen_ai.response.id"
	keyFinish        = "gen_ai.response.finish_reasons"
	keyInput         = "gen_ai.usage.input_tokens"
	keyOutput        = "gen_ai.usage.output_tokens"
	keyCached        = "gen_ai.usage.cache_read.input_tokens"
	keyTokenType     = "gen_ai.token.type"
	keyTool          = "gen_ai.tool.name"
	keyToolType      = "gen_ai.tool.type"
	keyCall          = "gen_ai.tool.call.id"
	keyArguments     = "gen_ai.tool.call.arguments"
	keyResult        = "gen_ai.tool.call.result"
	keyErrorType     = "error.type"

	metricTokens     = "gen_ai.client.token.usage"
	metricDuration   = "gen_ai.client.operation.duration"
	metricFirstChunk = "gen_ai.client.operation.time_to_first_chunk"
)
