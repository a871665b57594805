"""Every sentence of the verbs over a corpus of programs: its form, and a check of what it claims."""
