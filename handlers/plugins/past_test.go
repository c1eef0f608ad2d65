package plugins_test

// pastConfigs are the configurations of plugins that Kubernetes removed and that need one.
var pastConfigs = map[string][]byte{
	"PersistentVolumeLabel": []byte(`{"apiVersion":"fastadmit.io/v1alpha1","kind":"PersistentVolumeLabelConfiguration","volumes":[
		{"provider":"gce","id":"d","labels":{"topology.kubernetes.io/region":"r","topology.kubernetes.io/zone":"a__b"}}]}`),
}
