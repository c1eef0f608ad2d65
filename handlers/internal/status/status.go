// Package status is the status of the custom resources that plugins follow: conditions,
// which fastadmit writes.
package status

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers/cluster"
)

const (
	// messageBytesMax is how long the message of a condition is at most; the API has 32,768
	// (k8s.io/apimachinery pkg/apis/meta/v1 Condition).
	messageBytesMax = 8 << 10
	// timeout bounds writing one status.
	timeout = 5 * time.Second
)

// A Status is the field status of a custom resource.
type Status struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
	// TypeChecking is nil where types were not checked.
	TypeChecking *admissionregistrationv1.TypeChecking `json:"typeChecking,omitempty"`
}

// Of returns the status that an object has, an empty one if nobody can read it.
func Of(object *cluster.JSON) *Status {
	if has, ok := read(object); ok {
		return has
	}
	return new(Status)
}

// read reads the status that an object has; ok is false if nobody can.
func read(object *cluster.JSON) (has *Status, ok bool) {
	var o struct{ Status Status }
	text, err := object.MarshalJSON()
	if err == nil {
		err = json.Unmarshal(text, &o)
	}
	return &o.Status, err == nil
}

// Message returns an error as the message of a condition.
func Message(err error) string { return codec.TruncateString(err.Error(), messageBytesMax) }

// Says returns what a status says, without times.
func (s *Status) Says() string {
	text := fmt.Sprint(s.ObservedGeneration)
	for _, c := range s.Conditions {
		text += fmt.Sprintf(" %q %q %q %q %d", c.Type, c.Status, c.Reason, c.Message, c.ObservedGeneration)
	}
	if s.TypeChecking != nil {
		text += fmt.Sprintf(" %q", s.TypeChecking.ExpressionWarnings)
	}
	return text
}

// Condition returns the condition of a type, nil for none.
func (s *Status) Condition(of string) *metav1.Condition {
	return meta.FindStatusCondition(s.Conditions, of)
}

// A Writer writes the status of one object. All replicas come to the same, so whoever is
// first writes it; each writes what it has to say once, so that two of different versions do
// not go on contradicting each other.
type Writer struct {
	said string // what this process wrote or found
}

// A Change is a status that is to be written.
type Change struct {
	object *cluster.JSON
	says   string
}

// Due returns the change that makes now the status of an object. There is none where the
// object says so already, and, unless again is set, where this process said so before.
func (w *Writer) Due(object *cluster.JSON, now *Status, again bool) (c Change, due bool) {
	c.says = now.Says()
	if c.says == w.said && !again {
		return c, false
	}
	if c.object = now.in(object); c.object == nil {
		w.said = c.says
	}
	return c, c.object != nil
}

// Write writes a change, which Wrote tells the Writer then. After an error it is due again.
func (c Change) Write(ctx context.Context, objects *cluster.Objects[*cluster.JSON]) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, err := objects.UpdateStatus(ctx, c.object)
	return err
}

// Wrote notes that a change was written.
func (w *Writer) Wrote(c Change) { w.said = c.says }

// in returns a copy of an object with the status s, for UpdateStatus. It is nil where the
// object says the same already, or has a status that nobody can read.
func (s *Status) in(object *cluster.JSON) *cluster.JSON {
	before, ok := read(object)
	if !ok || before.Says() == s.Says() {
		return nil
	}
	s.keepTimes(before)
	text, err := json.Marshal(s)
	if err != nil {
		return nil // it is strings, numbers and times
	}
	var o codec.Object
	object.Read(&o)
	o.Set(string(text), "status")
	changed, err := cluster.NewJSON(o.Root().AppendJSON(nil))
	if err != nil || o.Err() != nil {
		return nil // it was an object of the API
	}
	return changed
}

// keepTimes sets when the conditions became what they are.
func (s *Status) keepTimes(before *Status) {
	for i := range s.Conditions {
		s.Conditions[i].LastTransitionTime = metav1.Now()
		for j := range before.Conditions {
			if b := &before.Conditions[j]; b.Type == s.Conditions[i].Type && b.Status == s.Conditions[i].Status {
				s.Conditions[i].LastTransitionTime = b.LastTransitionTime
			}
		}
	}
}
