// Package tolerations compares tolerations as kube-apiserver's plugins do
// (k8s.io/kubernetes pkg/util/tolerations).
package tolerations

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/fastadmit/fastadmit/codec"
)

// A Toleration is a corev1.Toleration that can be compared with == and used as a map key.
type Toleration struct {
	key, value string
	operator   corev1.TolerationOperator
	effect     corev1.TaintEffect
	seconds    int64
	limited    bool // seconds are set
}

// Read returns the toleration in v, an element of a pod's tolerations. Its strings are
// views of the review.
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

// Of converts a corev1.Toleration.
func Of(t *corev1.Toleration) Toleration {
	own := Toleration{key: t.Key, value: t.Value, operator: t.Operator, effect: t.Effect}
	if t.TolerationSeconds != nil {
		own.seconds, own.limited = *t.TolerationSeconds, true
	}
	return own
}

// Covers reports whether t tolerates all taints that other tolerates, as isSuperset in
// k8s.io/kubernetes pkg/util/tolerations does. If t has an unknown operator, it covers
// only an equal toleration. A t with the operator Equal does not cover one without an
// operator, unless they are equal.
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
