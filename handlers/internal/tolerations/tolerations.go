// Package tolerations compares tolerations as kube-apiserver's plugins do
// (k8s.io/kubernetes pkg/util/tolerations v1.36.3).
package tolerations

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/fastadmit/fastadmit/codec"
)

// A Toleration is a corev1.Toleration whose fields == compares.
type Toleration struct {
	key, value string
	operator   corev1.TolerationOperator
	effect     corev1.TaintEffect
	seconds    int64
	limited    bool // seconds are set
}

// Read reads a pod's toleration. Its strings are views, as those of Values are.
func Read(v codec.Value) Toleration {
	t := Toleration{
		key:      v.Get("key").String(),
		value:    v.Get("value").String(),
		operator: corev1.TolerationOperator(v.Get("operator").String()),
		effect:   corev1.TaintEffect(v.Get("effect").String()),
	}
	t.seconds, t.limited = v.Get("tolerationSeconds").Int64()
	return t
}

// Of returns what t says.
func Of(t *corev1.Toleration) Toleration {
	own := Toleration{key: t.Key, value: t.Value, operator: t.Operator, effect: t.Effect}
	if t.TolerationSeconds != nil {
		own.seconds, own.limited = *t.TolerationSeconds, true
	}
	return own
}

// Covers reports whether t tolerates all that other does, as upstream has it
// (isSuperset): with an operator that it does not know, or none on the other side,
// only if they are the same.
func (t *Toleration) Covers(other *Toleration) bool {
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
