package admission

import (
	"context"
	"time"

	"github.com/fastadmit/fastadmit/codec"
)

// Exceptions lift what plugins say against reviews: denials, also those that are enforced as warnings or audit
// annotations, and warnings. They lift no failures and no changes. Several goroutines may call the methods at the
// same time.
type Exceptions interface {
	// Name reports whether an exception names a plugin. It is called for each run of a plugin.
	Name(plugin string) bool
	// Lift returns the name of the exception that lifts what a plugin says against the review, empty if there is
	// none.
	Lift(ctx context.Context, review *codec.Review, plugin string) (exception string)
	// Use takes the names of the enabled plugins, before the first review.
	Use(plugins []string)
	// Unknown returns a sentence for each plugin or policy that an exception names and that is not enabled or does
	// not exist.
	Unknown() []string
	// List returns all exceptions, sorted by name.
	List() []Exception
}

// An Exception is what one of Exceptions says, for reports.
type Exception struct {
	// Name is the name of the exception.
	Name string `json:"name"`
	// Reason says why there is the exception.
	Reason string `json:"reason"`
	// ExpiresAt is when the exception ends, empty for never.
	ExpiresAt string `json:"expiresAt,omitempty"`
	// Lifted is how often it has lifted what a policy or a plugin said against a review.
	Lifted int64 `json:"lifted"`
}

// Exceptions returns the exceptions of the chain, nil for none.
func (c *Chain) Exceptions() Exceptions { return c.exceptions }

// tellExceptions tells the exceptions which plugins are enabled.
func (c *Chain) tellExceptions() {
	if c.exceptions == nil {
		return
	}
	names := make([]string, len(c.entries))
	for i := range c.entries {
		names[i] = c.entries[i].plugin.Name
	}
	c.exceptions.Use(names)
}

// lift undoes what a plugin said against the review, and its changes, if an exception lifts it. An audit annotation
// says which one. what is what the plugin said.
func (r *round) lift(ctx context.Context, e *entry, what string) bool {
	exception := r.chain.exceptions.Lift(ctx, r.review, e.plugin.Name)
	r.now = time.Since(epoch)
	if exception == "" {
		return false
	}
	r.review.Rollback()
	e.annotate(&r.review.Response, "excepted by PolicyException "+exception+": "+what)
	if r.explained != nil {
		r.explained.Exception = exception
	}
	return true
}
