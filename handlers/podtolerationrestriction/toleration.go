package podtolerationrestriction

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"

	"github.com/fastadmit/fastadmit/handlers/internal/tolerations"
)

// An entry is a toleration of a pod, or one for it.
type entry struct {
	tolerations.Toleration
	json string // empty for what the pod has already
	kept bool
}

// comparedMax is up to how many tolerations each is compared with each, which is
// faster for few and takes no memory.
const comparedMax = 64

// merge keeps what no other entry covers; of the same ones, the first. It
// reports whether all entries of the pod are kept. (Upstream: pkg/util/tolerations
// MergeTolerations.) The error is that of ctx.
func merge(ctx context.Context, entries []entry) (keepsPod bool, err error) {
	var kept []bool
	if len(entries) > comparedMax {
		all := make([]tolerations.Toleration, len(entries))
		for i := range entries {
			all[i] = entries[i].Toleration
		}
		if kept, err = tolerations.Kept(ctx, all); err != nil {
			return false, err
		}
	}
	keepsPod = true
	for i := range entries {
		e := &entries[i]
		if kept != nil {
			e.kept = kept[i]
		} else {
			e.kept = !isCovered(entries, i)
		}
		keepsPod = keepsPod && (e.kept || e.json != "")
	}
	return keepsPod, nil
}

func isCovered(entries []entry, i int) bool {
	e := &entries[i].Toleration
	for j := range entries[:i] {
		if entries[j].kept && entries[j].Covers(e) {
			return true
		}
	}
	for j := i + 1; j < len(entries); j++ {
		if later := &entries[j].Toleration; *later != *e && later.Covers(e) {
			return true
		}
	}
	return false
}

// known are the tolerations of an annotation, or of the configuration.
type known struct {
	entries []entry
	set     *tolerations.Set // of the entries
	err     error            // why there are none
}

// newTolerations makes them ready to be given to pods.
func newTolerations(from []corev1.Toleration) *known {
	all := &known{set: tolerations.NewSet(len(from))}
	for i := range from {
		t := &from[i]
		e := entry{Toleration: tolerations.Of(t)}
		text, err := json.Marshal(t)
		if err != nil {
			return &known{err: err}
		}
		e.json = string(text)
		all.entries = append(all.entries, e)
		all.set.Add(&e.Toleration)
	}
	return all
}

// parse reads an annotation, which may be empty.
func parse(text string) *known {
	var list []corev1.Toleration
	if text != "" {
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			return &known{err: err}
		}
	}
	return newTolerations(list)
}
