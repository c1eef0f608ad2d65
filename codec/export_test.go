package codec

// Checkpoint and Rollback are Review's for its Object.
func (o *Object) Checkpoint() { o.checkpoint() }
func (o *Object) Rollback()   { o.rollback() }
