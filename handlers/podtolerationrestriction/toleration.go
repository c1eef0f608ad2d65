package podtolerationrestriction

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"

	"github.com/fastadmit/fastadmit/codec"
)

// A toleration is a corev1.Toleration whose fields == compares.
type toleration struct {
	key, value string
	operator   corev1.TolerationOperator
	effect     corev1.TaintEffect
	seconds    int64
	limited    bool // seconds are set
}

// read reads a pod's toleration. Its strings are views, as those of Values are.
func read(v codec.Value) toleration {
	t := toleration{
		key:      v.Get("key").String(),
		value:    v.Get("value").String(),
		operator: corev1.TolerationOperator(v.Get("operator").String()),
		effect:   corev1.TaintEffect(v.Get("effect").String()),
	}
	t.seconds, t.limited = v.Get("tolerationSeconds").Int64()
	return t
}

// covers reports whether t tolerates all that other does, as upstream has it
// (pkg/util/tolerations isSuperset): with an operator that it does not know, or
// none on the other side, only if they are the same.
func (t *toleration) covers(other *toleration) bool {
	switch {
	case *t == *other:
		return true
	case t.key != other.key && (t.key != "" || t.operator != corev1.TolerationOpExists):
		return false
	case t.effect != other.effect && t.effect != "":
		return false
	case t.effect == corev1.TaintEffectNoExecute && t.limited && (!other.limited || other.seconds > t.seconds):
		return false
	case t.operator == corev1.TolerationOpEqual || t.operator == "":
		return other.operator == corev1.TolerationOpEqual && t.value == other.value
	}
	return t.operator == corev1.TolerationOpExists
}

// An entry is a toleration of a pod, or one for it.
type entry struct {
	toleration
	json string // empty for what the pod has already
	kept bool
}

// merge keeps what no other entry covers; of the same ones, the first. It
// reports whether all entries of the pod are kept. (Upstream: pkg/util/tolerations
// MergeTolerations.)
func merge(entries []entry) (keepsPod bool) {
	keepsPod = true
	for i := range entries {
		e := &entries[i]
		e.kept = !isCovered(entries, i)
		keepsPod = keepsPod && (e.kept || e.json != "")
	}
	return keepsPod
}

func isCovered(entries []entry, i int) bool {
	e := &entries[i].toleration
	for j := range entries[:i] {
		if entries[j].kept && entries[j].covers(e) {
			return true
		}
	}
	for j := i + 1; j < len(entries); j++ {
		if later := &entries[j].toleration; *later != *e && later.covers(e) {
			return true
		}
	}
	return false
}

// tolerations are those of an annotation, or of the configuration.
type tolerations struct {
	entries []entry
	err     error // why there are none
}

// cover reports whether one of them covers t.
func (all *tolerations) cover(t *toleration) bool {
	for i := range all.entries {
		if all.entries[i].covers(t) {
			return true
		}
	}
	return false
}

// newTolerations makes them ready to be given to pods.
func newTolerations(from []corev1.Toleration) *tolerations {
	all := new(tolerations)
	for i := range from {
		t := &from[i]
		e := entry{toleration: toleration{key: t.Key, value: t.Value, operator: t.Operator, effect: t.Effect}}
		if t.TolerationSeconds != nil {
			e.seconds, e.limited = *t.TolerationSeconds, true
		}
		text, err := json.Marshal(t)
		if err != nil {
			return &tolerations{err: err}
		}
		e.json = string(text)
		all.entries = append(all.entries, e)
	}
	return all
}

// parse reads an annotation, which may be empty.
func parse(text string) *tolerations {
	var list []corev1.Toleration
	if text != "" {
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			return &tolerations{err: err}
		}
	}
	return newTolerations(list)
}
