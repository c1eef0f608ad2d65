package controllerruntime

import (
	"encoding/json"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/fastadmit/fastadmit/codec"
)

// requestOf returns the request of a review, with the object as earlier plugins changed it. It is a
// copy, which the webhook may change and keep. It reports false if decoding the object would take
// more memory than an object may use.
func requestOf(review *codec.Review) (request admission.Request, fits bool, err error) {
	if !review.Object.Root().FitsDecoded() || !review.OldObject.Root().FitsDecoded() || !review.Options.Root().FitsDecoded() {
		return request, false, nil
	}
	request.AdmissionRequest = admissionv1.AdmissionRequest{
		UID:                types.UID(strings.Clone(review.UID())),
		Kind:               kind(review.Kind()),
		Resource:           resource(review.Resource()),
		SubResource:        strings.Clone(review.SubResource()),
		RequestSubResource: strings.Clone(review.RequestSubResource()),
		Name:               strings.Clone(review.Name()),
		Namespace:          strings.Clone(review.Namespace()),
		Operation:          admissionv1.Operation(strings.Clone(string(review.Operation()))),
		Object:             raw(&review.Object),
		OldObject:          raw(&review.OldObject),
		DryRun:             new(review.DryRun()),
		Options:            raw(&review.Options),
	}
	if k := review.RequestKind(); k != (codec.GroupVersionKind{}) {
		request.RequestKind = new(kind(k))
	}
	if r := review.RequestResource(); r != (codec.GroupVersionResource{}) {
		request.RequestResource = new(resource(r))
	}
	request.UserInfo, err = userInfo(review.UserInfo())
	return request, true, err
}

func kind(k codec.GroupVersionKind) metav1.GroupVersionKind {
	return metav1.GroupVersionKind{Group: strings.Clone(k.Group), Version: strings.Clone(k.Version), Kind: strings.Clone(k.Kind)}
}

func resource(r codec.GroupVersionResource) metav1.GroupVersionResource {
	return metav1.GroupVersionResource{Group: strings.Clone(r.Group), Version: strings.Clone(r.Version),
		Resource: strings.Clone(r.Resource)}
}

// raw returns a copy of a document, or nothing if it is missing.
func raw(o *codec.Object) runtime.RawExtension {
	return runtime.RawExtension{Raw: o.Root().AppendJSON(nil)}
}

func userInfo(v codec.Value) (info authenticationv1.UserInfo, err error) {
	if v.IsSet() {
		err = json.Unmarshal(v.AppendJSON(nil), &info)
	}
	return info, err
}
