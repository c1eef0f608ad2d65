package handlers_test

// pastConfigs are configurations of plugins that Kubernetes removed, for those that need
// one.
var pastConfigs = map[string][]byte{
	"InitialResources": []byte(`{"apiVersion":"fastadmit.io/v1alpha1","kind":"InitialResourcesConfiguration",` +
		`"source":{"url":"http://127.0.0.1:1"}}`),
	"PersistentVolumeLabel": []byte(`{"apiVersion":"fastadmit.io/v1alpha1","kind":"PersistentVolumeLabelConfiguration","volumes":[
		{"provider":"gce","id":"d","labels":{"topology.kubernetes.io/region":"r","topology.kubernetes.io/zone":"a__b"}}]}`),
}
