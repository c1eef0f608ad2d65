package codec

// AppendBase64 appends src in standard base64 (RFC 4648 section 4), which is
// how JSON has the patch of an AdmissionResponse.
func AppendBase64(dst, src []byte) []byte { return appendBase64(dst, src) }
