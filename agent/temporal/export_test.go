package temporal

// Converse is the workflow of a session, to replay its histories.
var Converse = converse
