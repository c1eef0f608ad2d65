package replay

import (
	"bytes"
	"context"
	"strings"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/compare"
	"github.com/fastadmit/fastadmit/internal/offline/report"
	"github.com/fastadmit/fastadmit/internal/recording"
)

// Explained counts the reviews that Explain found.
type Explained struct {
	Found     int // reviews with the UID
	Differing int // whose recorded answer is another one
	Failed    int // that could not be asked
}

// Explain repeats the recorded reviews with a UID, and calls emit with their results, which have an Explanation. Reviews
// that cannot be read and reviews without a UID are passed over.
func Explain(ctx context.Context, o *Options, paths []string, uid string, emit func(*report.Result) error) (found Explained, err error) {
	w := newSession(o).newWorker()
	var from source
	from = source{tree: o.Tree, stdin: o.Stdin, send: func(r record) bool {
		if r.isUnread && !r.load() {
			return from.open(r.tree, r.file)
		}
		if r.fault != nil || !isUID(r.body, uid) {
			return ctx.Err() == nil
		}
		found.Found++
		result := w.explain(ctx, &r)
		switch {
		case result.Decision == report.Broken:
			found.Failed++
		case result.Recorded != "":
			found.Differing++
		}
		err = emit(result)
		return err == nil && ctx.Err() == nil
	}}
	for _, path := range paths {
		if !from.read(path) {
			break
		}
	}
	if err == nil {
		err = ctx.Err()
	}
	return found, err
}

// isUID reports whether the text of a review has the UID.
func isUID(body []byte, uid string) bool {
	if !bytes.Contains(body, []byte(uid)) {
		return false
	}
	r := codec.Acquire()
	defer r.Release()
	return r.Decode(body) == nil && r.UID() == uid
}

// explain repeats a review, and says whether the recorded answer was another one.
func (w *worker) explain(ctx context.Context, r *record) *report.Result {
	result := &report.Result{File: r.file, Line: r.line}
	w.chain.Explain(func(x *admission.Explanation) { result.Explanation = append(result.Explanation, x) })
	all, skipped, err := w.differences(ctx, r, result)
	after := w.chain.Outcome()
	if after == nil {
		result.Decision, result.Message = report.Broken, err.Error()
		return result
	}
	result.Decision, result.Plugin, result.Code, result.Reason = decisionOf(after), after.Plugin, after.Code, after.Reason
	result.Message, result.PatchedBy, result.Patch = strings.TrimPrefix(after.Message, after.Plugin+": "), after.PatchedBy, after.Patch
	if r.answer != nil && len(all) > 0 {
		if before, err := compare.Recorded(r.answer, r.isPart); err == nil {
			result.Recorded = before.String()
		}
	}
	if skipped {
		result.Notes = append(result.Notes, "the plugin that gave the recorded answer is left out here, because it counts or writes")
	}
	if r.answer != nil && err != nil {
		result.Notes = append(result.Notes, err.Error())
	}
	if r.answer != nil && len(r.answer.LeftOut) > 0 {
		result.Notes = append(result.Notes, "secrets were left out when the review was recorded: "+strings.Join(r.answer.LeftOut, ", "))
	}
	if r.lacks != "" {
		result.Notes = append(result.Notes, "the source lacks "+r.lacks)
	}
	return result
}

func decisionOf(o *compare.Outcome) report.Decision {
	switch {
	case o.Decision == recording.Denied:
		return report.Denied
	case o.Decision == recording.Failed:
		return report.Failed
	case len(o.Patch) > 0:
		return report.Patched
	}
	return report.Allowed
}
