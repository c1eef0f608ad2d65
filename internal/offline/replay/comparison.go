package replay

import (
	"errors"

	"github.com/fastadmit/fastadmit/internal/compare"
	"github.com/fastadmit/fastadmit/internal/offline/report"
	"github.com/fastadmit/fastadmit/internal/recording"
)

// A Comparison counts and groups the differences between results of the same objects with two sets of
// plugins. Only one goroutine at a time may use it.
type Comparison struct{ session *session }

// NewComparison returns a Comparison without results.
func NewComparison() *Comparison {
	s := newSession(new(Options))
	s.tolerates = true
	return &Comparison{s}
}

// Add compares a result with its Against, and those of the objects that controllers create for the object.
// An object whose creator is denied by one side only has nothing to be compared with.
func (c *Comparison) Add(result *report.Result) {
	before := result.Against
	c.compare(before, result)
	created := make(map[string][]*report.Result)
	for _, r := range before.Created {
		created[r.Object()] = append(created[r.Object()], r)
	}
	for _, r := range result.Created {
		if same := created[r.Object()]; len(same) > 0 {
			created[r.Object()] = same[1:]
			r.Against, r.File, r.Line = same[0], result.File, result.Line
			c.Add(r)
		}
	}
}

// compare compares two results of an object.
func (c *Comparison) compare(before, after *report.Result) {
	s := c.session
	s.reviews.Add(1)
	described := *after
	described.Warnings, described.Created, described.Against = nil, nil, nil
	for _, r := range [...]*report.Result{before, after} {
		switch r.Decision {
		case report.Skipped:
			s.counted.Skipped++
			return
		case report.Broken:
			s.count(&described, nil, errors.New(r.Message))
			return
		}
	}
	from, to := outcomeOf(before), outcomeOf(after)
	all, err := compare.Outcomes(from, to, func() ([]byte, error) {
		if before.After == nil || after.After == nil {
			return nil, nil
		}
		return compare.Stored(before.After, after.After)
	})
	described.Policy = compare.PolicyOf(from, to)
	s.count(&described, all, err)
}

func outcomeOf(r *report.Result) *compare.Outcome {
	o := &compare.Outcome{
		Decision: recording.Allowed, Plugin: r.Plugin, PatchedBy: r.PatchedBy, Code: r.Code, Reason: r.Reason, Message: r.Message,
	}
	switch r.Decision {
	case report.Denied:
		o.Decision = recording.Denied
	case report.Failed:
		o.Decision = recording.Failed
	}
	for _, w := range r.Warnings {
		o.Warnings = append(o.Warnings, w.String())
	}
	return o
}

// Finish emits the differences as Run does, and returns the counts.
func (c *Comparison) Finish(emit func(*report.Result) error) (*report.Replay, error) {
	return c.session.finish(emit)
}
