// The command v1.13 answers AdmissionReviews as the admission plugin Initializers of Kubernetes
// v1.13 would, the last release that had it. Its arguments are the plugin's name and a list of
// InitializerConfigurations. Package removed says what it reads and writes.
//
// Today's API has no metadata.initializers. So the list is read from where fastadmit's plugin
// keeps it, and written there. As in fastadmit, creations are answered in the mutating phase and
// updates in the validating one.
//
// The user "bob" may initialize.
package main

import (
	"bytes"
	"encoding/json"
	"log"
	"os"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1beta1"
	"k8s.io/api/admissionregistration/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/initialization"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/fastadmit/fastadmit/e2e/removed"
)

const (
	gatePrefix = "initializers.fastadmit.io/"
	pendingKey = "initializers.fastadmit.io/pending"
)

func main() {
	if len(os.Args) != 3 || os.Args[1] != initialization.PluginName {
		log.Fatalf("got arguments %q, want %s and a list", os.Args[1:], initialization.PluginName)
	}
	if err := run(os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

// initializers is the authorizer that says who may initialize.
type initializers struct{}

func (initializers) Authorize(a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetUser().GetName() == "bob" && a.GetVerb() == "initialize" {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "denied", nil
}

func run(configurations string) error {
	var list v1alpha1.InitializerConfigurationList
	if err := json.Unmarshal([]byte(configurations), &list); err != nil {
		return err
	}
	plugin := start(&list).(admission.MutationInterface)
	return removed.Serve(nil, func(r *admissionv1.AdmissionRequest, phase string) (any, error) {
		return ask(plugin, r, phase)
	})
}

// start makes the plugin ready, and waits until it has read the configurations.
func start(known runtime.Object) admission.Interface {
	plugin := initialization.NewInitializer()
	plugin.(interface{ SetAuthorizer(authorizer.Authorizer) }).SetAuthorizer(initializers{})
	plugin.(interface {
		SetExternalKubeClientSet(kubernetes.Interface)
	}).SetExternalKubeClientSet(fake.NewSimpleClientset(known))
	if err := plugin.(admission.InitializationValidator).ValidateInitialization(); err != nil {
		log.Fatal(err)
	}
	for {
		pod := &unstructured.Unstructured{Object: map[string]interface{}{}}
		if err := plugin.(admission.MutationInterface).Admit(admission.NewAttributesRecord(pod, nil, schema.GroupVersionKind{}, "", "",
			schema.GroupVersionResource{}, "", admission.Create, false, &user.DefaultInfo{})); err == nil {
			return plugin
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func ask(plugin admission.MutationInterface, r *admissionv1.AdmissionRequest, phase string) (*removed.Answer, error) {
	asked := r.Operation == admissionv1.Create && phase == "mutate" || r.Operation == admissionv1.Update && phase == "validate"
	if !asked || len(r.Object.Raw) == 0 {
		return &removed.Answer{}, nil
	}
	isPod := r.Resource.Group == "" && r.Resource.Resource == "pods"
	object, before, err := read(r.Object.Raw, isPod)
	if err != nil {
		return nil, err
	}
	old, _, err := read(r.OldObject.Raw, isPod)
	if err != nil {
		return nil, err
	}
	if list := old.GetInitializers(); list != nil && len(list.Pending) == 0 {
		old.SetInitializers(nil) // v1.13 stored no empty list
	}
	bypass := object.GetInitializers() != nil && len(object.GetInitializers().Pending) == 0
	err = plugin.Admit(admission.NewAttributesRecord(object, old, schema.GroupVersionKind(r.Kind), r.Namespace, r.Name,
		schema.GroupVersionResource(r.Resource), r.SubResource, admission.Operation(r.Operation), false,
		&user.DefaultInfo{Name: r.UserInfo.Username}))
	if err != nil {
		if status, ok := err.(apierrors.APIStatus); ok {
			s := status.Status()
			return &removed.Answer{Status: place(&s, isPod)}, nil
		}
		return nil, err
	}
	after := before
	if list := object.GetInitializers(); list != nil && !bypass && r.Operation == admissionv1.Create {
		var names []string
		for _, one := range list.Pending {
			names = append(names, one.Name)
		}
		if after, err = write(r.Object.Raw, isPod, names); err != nil {
			return nil, err
		}
	}
	return &removed.Answer{Before: r.Object.Raw, After: after}, nil
}

// read decodes an object and puts the list where v1.13 keeps it.
func read(raw []byte, isPod bool) (*unstructured.Unstructured, json.RawMessage, error) {
	object := &unstructured.Unstructured{Object: map[string]interface{}{}}
	if len(raw) == 0 {
		return object, raw, nil
	}
	if err := decode(raw, &object.Object); err != nil {
		return nil, nil, err
	}
	text, ok := object.GetAnnotations()[pendingKey]
	var pending []metav1.Initializer
	if isPod {
		gates, _, _ := unstructured.NestedSlice(object.Object, "spec", "schedulingGates")
		for _, gate := range gates {
			if name, ok := gate.(map[string]interface{})["name"].(string); ok && strings.HasPrefix(name, gatePrefix) {
				pending = append(pending, metav1.Initializer{Name: strings.TrimPrefix(name, gatePrefix)})
			}
		}
	} else if text != "" {
		for _, name := range strings.Split(text, ",") {
			pending = append(pending, metav1.Initializer{Name: name})
		}
	}
	if len(pending) > 0 || ok && text == "" {
		object.SetInitializers(&metav1.Initializers{Pending: pending})
	}
	return object, raw, nil
}

// write returns the object with the list where fastadmit keeps it.
func write(raw []byte, isPod bool, names []string) (json.RawMessage, error) {
	object := &unstructured.Unstructured{Object: map[string]interface{}{}}
	if err := decode(raw, &object.Object); err != nil {
		return nil, err
	}
	had, _, err := read(raw, isPod)
	if err != nil {
		return nil, err
	}
	if had.GetInitializers() != nil {
		return raw, nil
	}
	if isPod {
		gates, _, _ := unstructured.NestedSlice(object.Object, "spec", "schedulingGates")
		for _, name := range names {
			gates = append(gates, map[string]interface{}{"name": gatePrefix + name})
		}
		if err := unstructured.SetNestedSlice(object.Object, gates, "spec", "schedulingGates"); err != nil {
			return nil, err
		}
	} else {
		annotations := object.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[pendingKey] = strings.Join(names, ",")
		object.SetAnnotations(annotations)
	}
	return json.Marshal(object.Object)
}

// place replaces the field of the list in a status by the one in which fastadmit keeps it.
func place(s *metav1.Status, isPod bool) *metav1.Status {
	at := "metadata.annotations[" + pendingKey + "]"
	if isPod {
		at = "spec.schedulingGates"
	}
	s.Message = strings.ReplaceAll(s.Message, "metadata.initializers", at)
	if s.Details != nil {
		for i := range s.Details.Causes {
			s.Details.Causes[i].Field = strings.ReplaceAll(s.Details.Causes[i].Field, "metadata.initializers", at)
		}
	}
	return s
}

// decode does not convert numbers.
func decode(raw []byte, into interface{}) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	return d.Decode(into)
}
