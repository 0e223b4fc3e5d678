"""The papers' programs by hand, for one backend each: what capture is measured against. Nothing live uses them."""
