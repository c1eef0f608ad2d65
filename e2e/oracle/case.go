// Package oracle compares two implementations of an admission plugin: Kubernetes' own, called in
// process as an API server calls it, and fastadmit's, which gets the AdmissionReview that the same
// API server would send. Where the answers differ, fastadmit's is wrong.
package oracle

import (
	"bytes"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/generic"
	webhookrequest "k8s.io/apiserver/pkg/admission/plugin/webhook/request"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
)

// Case is a request as it reaches admission control.
type Case struct {
	About       string
	Operation   admission.Operation
	Kind        schema.GroupVersionKind
	Resource    schema.GroupVersionResource
	Subresource string
	Name        string
	Namespace   string
	// Object and OldObject are of Kind; nil if the operation has none. An API server sets their
	// defaults, and so must the code that makes a Case.
	Object, OldObject runtime.Object
	Options           runtime.Object
	User              user.DefaultInfo
	DryRun            bool
	// AsKind and AsResource are the version that the webhook configuration names, if matchPolicy
	// Equivalent converts the request to it.
	AsKind     schema.GroupVersionKind
	AsResource schema.GroupVersionResource
	// Message normalizes messages that contain something random in Kubernetes, such as the order of
	// a Go map. It may be nil.
	Message func(message string) string
	// Decoded is set if Kubernetes decodes the changed object, and fastadmit leaves that to the API
	// server.
	Decoded bool
	// Unordered is set if Kubernetes looks at objects in random order and denies because of the
	// first one. Any of its answers will do.
	Unordered bool
}

const uid = types.UID("6b8a2f0e-7c35-4f0c-9d0a-3c8f7f6a1e52")

// request is a prepared Case. It is read-only.
type request struct {
	*Case
	attributes admission.Attributes
	versioned  *admission.VersionedAttributes
	body       []byte // the AdmissionReview, as an API server encodes it
	object     []byte // in the version that the webhook gets, nil if there is none
}

func objectInterfaces() admission.ObjectInterfaces {
	return admission.NewObjectInterfacesFromScheme(legacyscheme.Scheme)
}

func newRequest(c *Case) (*request, error) {
	r := &request{Case: c}
	var err error
	if r.attributes, err = c.attributes(); err != nil {
		return nil, err
	}
	if r.versioned, err = admission.NewVersionedAttributes(r.attributes, c.asKind(), objectInterfaces()); err != nil {
		return nil, err
	}
	review := webhookrequest.CreateV1AdmissionReview(uid, r.versioned, &generic.WebhookInvocation{
		Kind: c.asKind(), Resource: c.asResource(), Subresource: c.Subresource,
	})
	if r.body, err = runtime.Encode(reviewCodec(), review); err != nil {
		return nil, err
	}
	r.object, err = encode(r.versioned.VersionedObject.Object())
	return r, err
}

// attributes returns the attributes that an API server's plugins get. The objects are copies.
func (c *Case) attributes() (admission.Attributes, error) {
	object, err := internal(c.Object)
	if err != nil {
		return nil, err
	}
	oldObject, err := internal(c.OldObject)
	if err != nil {
		return nil, err
	}
	return admission.NewAttributesRecord(object, oldObject, c.Kind, c.Namespace, c.Name,
		c.Resource, c.Subresource, c.Operation, c.Options, c.DryRun, &c.User), nil
}

func (c *Case) asKind() schema.GroupVersionKind {
	if c.AsKind.Empty() {
		return c.Kind
	}
	return c.AsKind
}

func (c *Case) asResource() schema.GroupVersionResource {
	if c.AsResource.Empty() {
		return c.Resource
	}
	return c.AsResource
}

// internal returns a copy of the object in the API server's internal type. Custom resources have
// none.
func internal(object runtime.Object) (runtime.Object, error) {
	if object == nil {
		return nil, nil
	}
	object = object.DeepCopyObject()
	switch object := object.(type) {
	case *unstructured.Unstructured:
		return object, nil
	case *corev1.Pod: // an API server's defaults keep the deprecated field equal, before it calls plugins
		if object.Spec.ServiceAccountName == "" {
			object.Spec.ServiceAccountName = object.Spec.DeprecatedServiceAccount
		}
		object.Spec.DeprecatedServiceAccount = object.Spec.ServiceAccountName
	}
	return legacyscheme.Scheme.UnsafeConvertToVersion(object, runtime.InternalGroupVersioner)
}

// reviewCodec encodes reviews as API servers do for webhooks (k8s.io/apiserver
// pkg/util/webhook/client.go).
func reviewCodec() runtime.Codec {
	scheme := runtime.NewScheme()
	if err := admissionv1.AddToScheme(scheme); err != nil {
		panic(err)
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return serializer.NewCodecFactory(scheme).LegacyCodec(admissionv1.SchemeGroupVersion)
}

// encode encodes as the dispatcher does before it applies a patch
// (k8s.io/apiserver pkg/admission/plugin/webhook/mutating/dispatcher.go).
func encode(object runtime.Object) ([]byte, error) {
	if object == nil {
		return nil, nil
	}
	s := json.NewSerializerWithOptions(json.DefaultMetaFactory, legacyscheme.Scheme, legacyscheme.Scheme, json.SerializerOptions{})
	encoded, err := runtime.Encode(s, object)
	return bytes.TrimSpace(encoded), err
}
